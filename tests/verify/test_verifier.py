"""Point 4.3: what surefoot verify asks, and that it can stop with what is known."""

import functools
import itertools
import re
from dataclasses import replace

import pytest

from surefoot.core import SampleKey
from surefoot.ops import supported_variants
from surefoot.verify import HOSTILE, QUICK, TOGETHER, Condition, Verifier, differences, elsewhere
from surefoot.verify.requests import LONGEST_PROMPT, SEGMENT
from surefoot.verify.texts import TEXTS
from tests.stories import stories_gguf


@functools.cache
def small() -> Verifier:
    """As --quick has it."""
    return Verifier(stories_gguf(), num_requests=8, num_new=8)


def test_4_3_requests_are_of_every_kind() -> None:
    requests = {request.id: request for request in small().requests}
    assert requests.keys() >= TEXTS.keys()
    grammars = [one for one in requests.values() if one.params.grammar is not None]
    assert {(one.params.is_greedy, one.params.n) for one in grammars} == {(True, 1), (False, 2)}
    assert sum(one.embeds for one in requests.values()) == 2
    long = [one for one in requests.values() if len(one.prompt) > LONGEST_PROMPT]
    assert {one.embeds for one in long} == {True, False}
    assert all(len(one.prompt) > 2 * SEGMENT for one in long)
    natural = [requests[name].params for name in TEXTS]
    assert {one.n for one in natural} == {1, 2}
    assert all(one.logprobs is not None for one in natural)


def test_4_3_grammars_and_embeddings_are_what_was_asked_for() -> None:
    alone = Verifier(stories_gguf(), num_requests=1, num_new=24).alone
    for key, answer in alone.items():
        assert answer.error is None
        if key.request.startswith("schema"):
            assert answer.text.startswith('{"name": "')
        elif key.request.startswith("regex"):
            assert re.match("(Mon|Tues|Wednes)day, [0-3][0-9] ", answer.text)
        assert answer.text.startswith("embedding: ") == key.request.endswith("embedding")


def test_4_3_memory_that_is_short_preempts() -> None:
    """By the scheduler's own choice: nobody asks it to."""
    (condition,) = (one for one in QUICK if one.is_short)
    assert condition.preempt_every is None
    finding = small().run(condition)
    assert finding.num_preemptions > 0
    assert (finding.differences, finding.unmet, finding.is_whole) == ((), (), True)


def test_4_3_what_did_not_come_about_is_told() -> None:
    few = Verifier(stories_gguf(), num_requests=1, num_new=2)
    few.requests = few.requests[:1]
    finding = few.run(Condition("little memory", memory=0.0, drafter="lookup"))
    assert finding.is_whole
    assert finding.unmet == ("preemption", "cache hit", "draft")


def test_4_3_a_slow_variant_gets_a_share() -> None:
    (condition,) = elsewhere([TOGETHER], [supported_variants()[-1]], [1])
    little, much = small().run(condition, share_s=1e-9), small().run(condition, share_s=1e9)
    assert (little.num_requests, little.is_whole) == (2, False)
    assert (much.num_requests, much.is_whole) == (len(small().requests), True)
    assert little.differences == much.differences == ()


@pytest.mark.parametrize("num_asked", [0, 3, 60, 100])
def test_4_3_it_stops_with_what_is_known(num_asked: int) -> None:
    """Over after so many questions whether it is: while requests run alone, or under the first conditions."""
    verifier = Verifier(stories_gguf(), num_requests=8, num_new=8)
    num_all = len(verifier.requests)
    count = itertools.count()
    conditions = [TOGETHER, HOSTILE, *QUICK]
    findings = list(verifier.check(conditions, lambda: next(count) >= num_asked))
    assert len(findings) <= 3 < len(conditions)
    assert all(finding.differences == () and finding.num_samples > 0 for finding in findings)
    if num_asked < num_all:
        assert len(verifier.requests) == num_asked
        assert findings == []
    else:
        assert findings
        # How many steps a condition takes depends on the machine: it may be over between two of them.
        assert findings[-1].is_whole == (findings[-1].num_samples == len(verifier.alone))
        assert all(finding.is_whole for finding in findings[:-1])


def test_4_3_another_embedding_is_found() -> None:
    expected = dict(small().alone)
    key = SampleKey("embedding", 0)
    text = expected[key].text
    changed = replace(expected[key], text=text[:-1] + ("0" if text[-1] != "0" else "1"))
    (difference,) = differences(expected, expected | {key: changed})
    assert (difference.request, difference.what) == ("embedding", "embedding")
