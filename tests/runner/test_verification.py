"""Drafts: what is drawn, what is accepted, and what a failed step leaves behind."""

import time

from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import SamplingParams, sample_seed
from surefoot.runner.results import DrawState, Verification
from tests.runner.tokens import drafted, drawn

TOKENS = st.integers(0, 3)
STOP = 3
PLAIN = SamplingParams(seed=5)
PENALISED = SamplingParams(seed=5, frequency_penalty=0.5)


def verification(drafts: list[int], params: SamplingParams = PLAIN, first_end: int = 0) -> Verification:
    state = DrawState(params, (7, 7), (1,), None)
    return Verification(drafted(1, drafts), params, frozenset({STOP}), 20, state, first_end)


def run(made: Verification, text: list[int]) -> list[int]:
    """Draw the tokens of a text, whatever the draft says."""
    while not made.is_done and made.prepare(time.perf_counter()):
        first, rows = len(made.drawn[0]), [draw.row for draw in made.draws()]
        assert rows == list(range(20 + first, 20 + first + len(rows)))
        made.take(drawn(*text[first : first + len(rows)]))
    return [draw.token for draw in made.drawn[0]]


@given(st.lists(TOKENS, max_size=6), st.lists(TOKENS, min_size=7, max_size=7))
def test_tokens_are_accepted_up_to_the_first_that_differs_or_ends(drafts: list[int], text: list[int]) -> None:
    """The same whether draws are made at once or, with penalties, one at a time."""
    wanted = 1
    for draft, token in zip(drafts, text, strict=False):
        if draft != token or token == STOP:
            break
        wanted += 1
    for params in (PLAIN, PENALISED):
        made = verification(drafts, params)
        assert run(made, text) == text[:wanted]
        assert made.last_row == 20 + wanted - 1


@given(st.lists(TOKENS, min_size=1, max_size=6))
def test_a_failed_step_leaves_the_state_as_it_was(drafts: list[int]) -> None:
    made = verification(drafts, PENALISED)
    before = made.state
    assert before.seen is not None
    counts = before.seen.counts.tolist()
    run(made, [*drafts, 0])
    assert before.seen.counts.tolist() == counts


def test_draws_are_named_by_seed_and_position() -> None:
    """So that the same token is drawn with and without a draft."""
    alone, together = verification([]), verification([0, 1, 2])
    (first,) = alone.draws()
    assert [draw.position for draw in together.draws()] == [10, 11, 12, 13]
    assert (first.seed, first.position) == (together.draws()[0].seed, together.draws()[0].position)
    assert first.seed == sample_seed(5, 0)


def test_ends_are_barred_before_the_least_length() -> None:
    barred = [draw.barred for draw in verification([0, 1, 2], first_end=12).draws()]
    assert barred == [frozenset({STOP}), frozenset({STOP}), frozenset(), frozenset()]


def test_all_samples_of_a_prompt_are_drawn_from_one_row() -> None:
    chunk = drafted(1, [])._replace(samples=(0, 1, 2))
    made = Verification(chunk, PLAIN, frozenset(), 4, DrawState(PLAIN, (), (), None))
    draws = made.draws()
    assert [draw.row for draw in draws] == [4, 4, 4]
    assert len({draw.seed for draw in draws}) == 3
    made.take(drawn(1, 2, 3))
    assert made.is_done
    assert [[draw.token for draw in sample] for sample in made.drawn] == [[1], [2], [3]]
