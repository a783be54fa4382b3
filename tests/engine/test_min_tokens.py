"""min_tokens: no stop token is sampled before, with drafts and without."""

import functools
from collections.abc import Callable

import pytest

from surefoot.core import FinishReason, Request, SamplingParams
from surefoot.runner import DraftModel
from surefoot.speculate import Drafter, LookupDrafter, Speculator
from surefoot.verify.drafters import RULES, RandomDepths
from tests.engine.engine import Answers, run
from tests.engine.speculation import draft_runner, make_engine, scripted

PROMPT = (1, 403, 407, 261, 378)
MIN_TOKENS = 12
KINDS = [
    SamplingParams(temperature=0, max_tokens=40, logprobs=1),
    SamplingParams(seed=5, max_tokens=40, logprobs=0, n=3),
    SamplingParams(seed=6, max_tokens=40, frequency_penalty=0.5, logprobs=2),
]


def min_token_requests(min_tokens: int, stops: tuple[int, ...] = ()) -> list[Request]:
    def make(number: int, kind: SamplingParams) -> Request:
        params = SamplingParams(**{**vars(kind), "min_tokens": min_tokens, "stop_token_ids": stops})
        return Request(f"r{number}", PROMPT, params, eos_token_ids=frozenset({2}))

    return [make(number, kind) for number, kind in enumerate(KINDS)]


@functools.cache
def unconstrained() -> Answers:
    return run(make_engine(None), min_token_requests(0))


@functools.cache
def stops() -> tuple[int, ...]:
    """Tokens that occur early in all answers."""
    return tuple(sorted({tokens[index] for tokens, _, _ in unconstrained().values() for index in (2, 5, 20)}))


@functools.cache
def constrained() -> Answers:
    return run(make_engine(None), min_token_requests(MIN_TOKENS, stops()))


def test_min_tokens_delays_stop_tokens() -> None:
    early = run(make_engine(None), min_token_requests(0, stops()))
    assert all(len(tokens) < MIN_TOKENS and reason is FinishReason.STOP for tokens, _, reason in early.values())
    for tokens, _, reason in constrained().values():
        assert len(tokens) > MIN_TOKENS or reason is FinishReason.LENGTH
        assert not {2, *stops()} & set(tokens[:MIN_TOKENS])
    assert FinishReason.STOP in {reason for _, _, reason in constrained().values()}


def test_logprobs_are_before_min_tokens() -> None:
    """The logprobs of the first token equal those without min_tokens."""
    for key, (_, logprobs, _) in constrained().items():
        first, before = logprobs[0], unconstrained()[key][1][0]
        assert first.top == before.top


@pytest.mark.parametrize("name", [*RULES, "lookup", "draft model"])
def test_min_tokens_with_speculation(name: str) -> None:
    """Scripted drafts come from the answers without min_tokens: stop tokens among them are wrong."""
    makers: dict[str, Callable[[], Drafter]] = {
        "lookup": LookupDrafter,
        "draft model": lambda: DraftModel(draft_runner(), 512),
    }
    make = makers[name] if name in makers else scripted(unconstrained(), name)
    assert (
        run(make_engine(Speculator(make(), RandomDepths(max_depth=7))), min_token_requests(MIN_TOKENS, stops()))
        == constrained()
    )


def test_min_tokens_with_a_grammar_is_refused() -> None:
    with pytest.raises(ValueError, match="min_tokens"):
        SamplingParams(grammar="x", min_tokens=1)
