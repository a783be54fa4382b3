"""Point 1.4, min_tokens: no token that would end the answer is drawn before, with drafts and without."""

import functools
from collections.abc import Callable

import pytest

from surefoot.core import FinishReason, Request, SamplingParams
from surefoot.runner import DraftModel
from surefoot.speculate import Drafter, LookupDrafter, Speculator
from surefoot.verify.drafters import RULES, RandomDepths
from tests.engine.test_engine import Found, run
from tests.engine.test_speculation import draft_runner, make_engine, scripted

PROMPT = (1, 403, 407, 261, 378)
LEAST = 12
KINDS = [
    SamplingParams(temperature=0, max_tokens=40, logprobs=1),
    SamplingParams(seed=5, max_tokens=40, logprobs=0, n=3),
    SamplingParams(seed=6, max_tokens=40, frequency_penalty=0.5, logprobs=2),
]


def asked(least: int, stops: tuple[int, ...] = ()) -> list[Request]:
    def one(number: int, kind: SamplingParams) -> Request:
        params = SamplingParams(**{**vars(kind), "min_tokens": least, "stop_token_ids": stops})
        return Request(f"r{number}", PROMPT, params, eos_token_ids=frozenset({2}))

    return [one(number, kind) for number, kind in enumerate(KINDS)]


@functools.cache
def free() -> Found:
    return run(make_engine(None), asked(0))


@functools.cache
def stops() -> tuple[int, ...]:
    """Tokens that all answers come to soon if they may."""
    return tuple(sorted({tokens[place] for tokens, _, _ in free().values() for place in (2, 5, 20)}))


@functools.cache
def held() -> Found:
    return run(make_engine(None), asked(LEAST, stops()))


def test_1_4_min_tokens_holds_ends_back() -> None:
    early = run(make_engine(None), asked(0, stops()))
    assert all(len(tokens) < LEAST and reason is FinishReason.STOP for tokens, _, reason in early.values())
    for tokens, _, reason in held().values():
        assert len(tokens) > LEAST or reason is FinishReason.LENGTH
        assert not {2, *stops()} & set(tokens[:LEAST])
    assert FinishReason.STOP in {reason for _, _, reason in held().values()}


def test_1_4_logprobs_are_the_models_own() -> None:
    """The first token's are those of the answer that was not held back."""
    for key, (_, logprobs, _) in held().items():
        first, before = logprobs[0], free()[key][1][0]
        assert first.top == before.top


@pytest.mark.parametrize("name", [*RULES, "lookup", "draft model"])
def test_1_4_min_tokens_and_drafts(name: str) -> None:
    """ScriptedDrafter drafts guess from the answers that were not held back: ends among them are wrong."""
    makers: dict[str, Callable[[], Drafter]] = {
        "lookup": LookupDrafter,
        "draft model": lambda: DraftModel(draft_runner(), 512),
    }
    make = makers[name] if name in makers else scripted(free(), name)
    assert run(make_engine(Speculator(make(), RandomDepths(max_depth=7))), asked(LEAST, stops())) == held()


def test_1_4_min_tokens_and_a_grammar_are_refused() -> None:
    with pytest.raises(ValueError, match="min_tokens"):
        SamplingParams(grammar="x", min_tokens=1)
