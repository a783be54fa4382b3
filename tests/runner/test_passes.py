"""A step's chunks become rows of the model's arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.models import empty_batch
from surefoot.runner.runner import BatchRows, FlatStep, last_rows

BLOCK, WIDTH = 4, 8
CHUNKS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=5)


@given(CHUNKS, st.randoms(use_true_random=False))
def test_every_row_has_its_token_position_and_slot(chunks: list[tuple[int, int, int]], rng: object) -> None:
    """chunks: tokens in the cache, tokens of the chunk, how many of its last need logits."""
    cached, counts, wanted = zip(*((first, count, min(need, count)) for first, count, need in chunks), strict=True)
    num_rows = sum(counts)
    tables = np.random.default_rng(num_rows).permutation(len(chunks) * WIDTH).reshape(len(chunks), WIDTH)
    batch = empty_batch(num_rows, len(chunks), sum(wanted), {0: WIDTH})
    step = FlatStep(list(range(100, 100 + num_rows)), cached, counts, wanted, {0: tables})
    BatchRows(batch, counts, wanted).fill(step, BLOCK)
    row = 0
    logits = list[int]()
    for chunk, (first, count, need) in enumerate(zip(cached, counts, wanted, strict=True)):
        for position in range(first, first + count):
            assert batch.tokens[row] == 100 + row
            assert batch.positions[row] == position
            assert batch.kv[0].slots[row] == tables[chunk, position // BLOCK] * BLOCK + position % BLOCK
            row += 1
        logits += range(row - need, row)
        assert batch.kv[0].chunks.lengths[chunk] == first + count
        assert batch.kv[0].chunks.starts[chunk + 1] == row
    assert batch.wanted.tolist() == logits == last_rows(np.cumsum(counts), wanted).tolist()


def test_a_table_is_copied_only_when_it_is_another_array() -> None:
    """Decode steps share their mapping: an unchanged table must be the same object."""
    batch, table = empty_batch(1, 1, 1, {0: WIDTH}), np.full((1, WIDTH), 3)
    rows = BatchRows(batch, [1], [1])
    rows.fill(FlatStep([7], [0], [1], [1], {0: table}), BLOCK)
    table[:] = 5  # in place: not noticed, as callers promise not to
    rows.fill(FlatStep([7], [1], [1], [1], {0: table}), BLOCK)
    assert batch.kv[0].chunks.block_table.tolist() == [[3] * WIDTH]
    rows.fill(FlatStep([7], [1], [1], [1], {0: table.copy()}), BLOCK)
    assert batch.kv[0].chunks.block_table.tolist() == [[5] * WIDTH]
