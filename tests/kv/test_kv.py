"""What groups of layers cost, and what becomes of blocks."""

import pytest

from surefoot.core import NO_BLOCK
from surefoot.kv import KvGroup, KvKind, KvLayout, KvManager, LayerKv, make_layout
from tests.kv.memory import keys_of

FULL, WINDOW = LayerKv(KvKind.FULL, 1000), LayerKv(KvKind.WINDOW, 1000, window=512)
LATENT, SHARED = LayerKv(KvKind.LATENT, 60), LayerKv(KvKind.SHARED)


def typical_bytes(layout: KvLayout, num_tokens: int) -> int:
    blocks = layout.price(num_tokens, 1, 1, max_chunk=256)
    pairs = zip(blocks, layout.groups, strict=True)
    return sum(count * group.slot_bytes * layout.block_size for count, group in pairs)


def test_layers_cost_what_they_keep() -> None:
    budget = 1 << 30
    plain = make_layout([FULL] * 12, 16, budget, max_chunk=256)
    assert typical_bytes(plain, 4096) == 4096 * 12_000
    latent = make_layout([LATENT] * 12, 16, budget, max_chunk=256)
    assert typical_bytes(latent, 4096) == 4096 * 720
    shared = make_layout([FULL, SHARED] * 6, 16, budget, max_chunk=256)
    assert typical_bytes(shared, 4096) == 4096 * 6_000
    mixed = make_layout([FULL] * 2 + [WINDOW] * 10, 16, budget, max_chunk=256)
    # Window layers: 511 tokens before a chunk of 256, up to whole blocks, and one block for where the window begins.
    assert typical_bytes(mixed, 4096) == 4096 * 2_000 + (768 + 16) * 10_000
    assert [group.window for group in mixed.groups] == [0, 512]
    for layout in (plain, latent, shared, mixed):
        assert 0.99 * budget < layout.total_bytes <= budget


def test_layers_that_make_no_sense_are_refused() -> None:
    for kind, slot_bytes, window in [
        (KvKind.WINDOW, 10, 0),
        (KvKind.FULL, 10, 5),
        (KvKind.SHARED, 10, 0),
        (KvKind.FULL, 0, 0),
    ]:
        with pytest.raises(ValueError, match=kind.value):
            LayerKv(kind, slot_bytes, window)
    with pytest.raises(ValueError, match="bytes"):
        make_layout([FULL], 16, 1000)


def run(kv: KvManager, tokens: list[int], namespace: str = "", num_public: int = 0, chunk: int = 8) -> None:
    holding = kv.open(namespace, num_public)
    keys = keys_of(tokens, kv.layout.block_size)
    kv.adopt(holding, keys[: (len(tokens) - 1) // kv.layout.block_size])
    while holding.num_computed < len(tokens):
        end = min(holding.num_computed + chunk, len(tokens))
        assert kv.extend(holding, end) == []
        kv.commit(holding, end, keys)
        kv.audit()
    kv.close(holding)


def num_known(kv: KvManager, tokens: list[int], namespace: str = "") -> int:
    holding = kv.open(namespace)
    nodes = kv.match(holding, keys_of(tokens, kv.layout.block_size))
    kv.close(holding)
    return len(nodes)


def test_the_longest_unused_leaf_is_evicted_first() -> None:
    kv = KvManager(KvLayout(4, (KvGroup(8),)))
    old, new = [1] * 16, [2] * 16
    run(kv, old)
    run(kv, new)
    run(kv, [3] * 8)
    assert (num_known(kv, old), num_known(kv, new)) == (2, 4), "the end of the oldest went first"
    run(kv, old)
    run(kv, [4] * 8)
    assert (num_known(kv, old), num_known(kv, [3] * 8)) == (4, 2), "what was used again stays"
    kv.audit()


def test_public_blocks_are_seen_by_all_and_private_ones_by_their_own() -> None:
    kv = KvManager(KvLayout(4, (KvGroup(64),)))
    tokens = list(range(32))
    run(kv, tokens, "a", num_public=18)
    assert num_known(kv, tokens, "a") == 8
    assert num_known(kv, tokens, "b") == 4, "18 public tokens are four blocks"
    run(kv, tokens, "b")
    assert num_known(kv, tokens, "b") == 8
    assert num_known(kv, tokens, "c") == 4


def test_a_private_way_is_taken_where_it_is_longer_than_the_public_one() -> None:
    kv = KvManager(KvLayout(4, (KvGroup(64),)))
    tokens = list(range(32))
    run(kv, tokens, "a")
    run(kv, tokens[:16], "b", num_public=16)
    assert num_known(kv, tokens, "a") == 8
    assert num_known(kv, tokens, "b") == 4


def test_window_layers_give_back_what_left_the_window() -> None:
    kv = KvManager(KvLayout(4, (KvGroup(64), KvGroup(64, window=8))), caching=False)
    holding = kv.open()
    for end in range(4, 101, 4):
        assert kv.extend(holding, end) is not None
        kv.commit(holding, end, [])
        kv.audit()
    full, window = kv.usage()
    assert (full.num_held, window.num_held) == (25, 2)
    assert holding.tables[1].count(NO_BLOCK) == 23


def test_a_prefix_is_of_use_only_with_all_that_its_windows_see() -> None:
    kv = KvManager(KvLayout(4, (KvGroup(64), KvGroup(6, window=8))))
    tokens = list(range(40))
    run(kv, tokens, chunk=4)
    # Six window blocks are kept: the last six of ten. So one may go on behind the last, or behind a few before it.
    assert num_known(kv, tokens) == 10
    assert num_known(kv, tokens[:24]) == 6
    assert num_known(kv, tokens[:20]) == 0
    kv.audit()
