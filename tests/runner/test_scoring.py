"""Logprobs of a prompt: every token but the first is scored once, whatever the chunks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.runner.results import PromptLogprobs
from tests.runner.pooling import CUTS, LENGTH
from tests.runner.tokens import logits_of

VOCAB = 11
PROMPT = [token % VOCAB for token in range(3, 3 + LENGTH)]


def scored(backend: Backend, cuts: list[int], retried: frozenset[int] = frozenset()) -> PromptLogprobs:
    scores = PromptLogprobs(PROMPT, 2)
    rows: F32 = logits_of(LENGTH, VOCAB)
    for number, (start, end) in enumerate(pairwise(cuts)):
        for _ in range(2 if number in retried else 1):
            wanted = scores.wanted(start, end - start)
            if wanted:
                scores.add(backend, rows[wanted.start : wanted.stop])
    return scores


@given(CUTS, st.frozensets(st.integers(0, LENGTH)))
def test_each_token_is_scored_once(cuts: list[int], retried: frozenset[int]) -> None:
    backend = Backend(threads=1)
    found, whole = scored(backend, cuts, retried).logprobs(), scored(backend, [0, LENGTH]).logprobs()
    backend.close()
    assert found == whole
    assert [each.token for each in found] == PROMPT[1:]
