"""Penalties and bias against the formulas, one number at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import SamplingParams
from surefoot.sampling import SeenTokens
from surefoot.sampling.sampler import apply_bias, apply_penalties, has_penalties

VOCAB = 40
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=60)
rows = st.tuples(
    tokens, tokens,
    st.builds(
        SamplingParams,
        repetition_penalty=st.floats(0.125, 3, width=32),
        presence_penalty=st.floats(-2, 2, width=32),
        frequency_penalty=st.floats(-2, 2, width=32),
    ),
)  # fmt: skip


def by_the_formula(x: np.float32, token: int, prompt: list[int], drawn: list[int], params: SamplingParams) -> float:
    repetition, presence, frequency = (
        np.float32(value) for value in (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    )
    if token in prompt or token in drawn:
        x = x / repetition if x > 0 else x * repetition
    count = np.float32(drawn.count(token))
    if count:
        x = x - frequency * count
        x = x - presence
    return float(x)


@given(st.lists(rows, min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_penalties_follow_the_formula_in_any_batch(given_rows: list, seed: int) -> None:
    before = np.random.default_rng(seed).standard_normal((len(given_rows), VOCAB), dtype=np.float32) * 8
    after = before.copy()
    seen = [SeenTokens(prompt, drawn) for prompt, drawn, _ in given_rows]
    apply_penalties(after, range(len(seen)), [params for _, _, params in given_rows], seen)
    for row, (prompt, drawn, params) in enumerate(given_rows):
        expected = [by_the_formula(before[row, token], token, prompt, drawn, params) for token in range(VOCAB)]
        assert after[row].tolist() == expected


@given(tokens, tokens)
def test_seen_tokens_count_sampled_tokens(prompt: list[int], drawn: list[int]) -> None:
    seen = SeenTokens(prompt)
    for token in drawn:
        seen.add(token)
    assert dict(zip(seen.ids.tolist(), seen.counts.tolist(), strict=True)) == {
        token: drawn.count(token) for token in {*prompt, *drawn}
    }


def test_a_long_answer_of_new_tokens() -> None:
    seen = SeenTokens([5], range(10, 1000))
    assert seen.ids.tolist() == [5, *range(10, 1000)]
    assert seen.counts.sum() == 990


def test_neutral_penalties_are_recognised() -> None:
    assert not has_penalties(SamplingParams(logit_bias={1: 2.0}))
    assert has_penalties(SamplingParams(frequency_penalty=0.1))


def test_bias_is_added_and_unknown_ids_are_ignored() -> None:
    logits = np.arange(4, dtype=np.float32)
    apply_bias(logits, {1: 2.5, 3: -100.0, 4: 1.0, 9999: 1.0})
    assert logits.tolist() == [0, 3.5, 2, -97]
