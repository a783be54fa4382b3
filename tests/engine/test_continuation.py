"""Answers that go on from tokens sampled elsewhere: for every cut, the same ids, text and logprob bits."""

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.core import Pooling, Request, SampleKey, SamplingParams
from surefoot.engine import Engine, Event
from surefoot.scheduler import RequestRefused
from surefoot.verify import HOSTILE, TOGETHER, Condition, Verifier
from surefoot.verify.verifier import ALONE, ConditionedEngine, continued
from tests.stories import stories_gguf

NUM_NEW = 24
GREEDY = SamplingParams(temperature=0, max_tokens=8, seed=1)


@functools.cache
def stories() -> Verifier:
    """Requests of every kind: penalties, biases, grammars, stop strings, several samples, logprobs."""
    return Verifier(stories_gguf(), num_requests=32, num_new=NUM_NEW)


def check(verifier: Verifier, condition: Condition) -> None:
    finding = verifier.run(condition)
    assert finding.differences == ()
    assert finding.is_whole


@pytest.mark.parametrize("cut", range(NUM_NEW))
def test_every_cut(cut: int) -> None:
    check(stories(), replace(TOGETHER, cut=cut, arrivals=cut))


@pytest.mark.parametrize("cut", [1, 5, 16])
def test_cuts_among_preemptions_and_drafts(cut: int) -> None:
    check(stories(), replace(HOSTILE, cut=cut))


@pytest.mark.parametrize("cut", [3, 20])
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5"])
def test_windows_and_states(family: str, cut: int, tmp_path: Path) -> None:
    pytest.importorskip("tests.models.tiny").save(family, tmp_path)
    check(Verifier(tmp_path, num_requests=8, num_new=40), replace(TOGETHER, cut=cut, max_chunk=5))


def test_the_requests_are_continued() -> None:
    """What the tests above rest on: requests that have begun, some samples further than others."""
    verifier = stories()
    begun = [continued(request, verifier.alone, 5) for request in verifier.requests]
    lengths = {tuple(map(len, request.begun)) for request in begun}
    assert {(5,), (5, 6), (5, 6, 7)} <= lengths
    assert {request.params.grammar is not None for request in begun if request.begun} == {True, False}


def test_a_wrong_token_changes_the_answer() -> None:
    """The comparison itself: from another token on, the answer is another one."""
    verifier = stories()
    request = next(request for request in verifier.requests if request.params.max_tokens >= 8 and request.params.n == 1)
    begun = continued(request, verifier.alone, 3)
    wrong = replace(begun, begun=((begun.begun[0][0], begun.begun[0][1], begun.begun[0][2] ^ 1),))
    answers = ConditionedEngine(verifier, ALONE, [wrong]).run([wrong], known=verifier.alone)
    key = SampleKey(request.id, 0)
    assert answers[key].token_ids[3:] != verifier.alone[key].token_ids[3:]


def engine() -> Engine:
    return ConditionedEngine(stories(), ALONE, [Request("x", (1, 2), GREEDY)]).engine


def test_usage_counts_the_whole_answer() -> None:
    whole = run(Request("x", (1, 2, 3), GREEDY))
    tokens = tuple(token for event in whole for token in event.tokens)
    rest = run(Request("x", (1, 2, 3), GREEDY, begun=(tokens[:5],)))
    assert tuple(token for event in rest for token in event.tokens) == tokens[5:]
    usage = rest[-1].usage
    assert usage is not None
    assert (usage.num_prompt, usage.num_generated) == (3, len(tokens))
    assert usage.num_cached <= 3


def run(request: Request) -> list[Event]:
    made = engine()
    made.add(request)
    events = []
    while made.has_work:
        events += made.step()
    return events


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"begun": ((1,), (2,))}, "n is 1"),
        ({"begun": ((-1,),)}, "token"),
        ({"begun": ((4, 9),), "eos_token_ids": frozenset({4})}, "ended"),
        ({"begun": ((1,),), "params": replace(GREEDY, prompt_logprobs=1)}, "cannot go on"),
        ({"begun": ((1,),), "pooling": Pooling.MEAN}, "cannot go on"),
    ],
)
def test_what_cannot_have_begun_is_refused(change: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Request("x", (1, 2), **{"params": GREEDY, **change})


def test_an_answer_that_is_complete_is_refused() -> None:
    with pytest.raises(RequestRefused, match="already has all of its"):
        engine().add(Request("x", (1, 2), GREEDY, begun=((7,) * 8,)))
