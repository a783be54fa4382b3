"""The requests and findings of surefoot verify, and what it reports when it runs out of time."""

import functools
import itertools
import re
from dataclasses import replace

import pytest

from surefoot.core import SampleKey
from surefoot.ops import supported_variants
from surefoot.verify import HOSTILE, QUICK, TOGETHER, Condition, Verifier, differences, on_variants
from surefoot.verify.requests import MAX_RANDOM_PROMPT, SEGMENT, TEXTS
from tests.stories import stories_gguf


@functools.cache
def small() -> Verifier:
    """The size of --quick."""
    return Verifier(stories_gguf(), num_requests=8, num_new=8)


def test_requests_cover_every_kind() -> None:
    requests = {request.id: request for request in small().requests}
    assert requests.keys() >= TEXTS.keys()
    grammars = [request for request in requests.values() if request.params.grammar is not None]
    assert {(request.params.is_greedy, request.params.n) for request in grammars} == {(True, 1), (False, 2)}
    assert sum(request.embeds for request in requests.values()) == 3
    long = [request for request in requests.values() if len(request.prompt) > MAX_RANDOM_PROMPT]
    assert {request.embeds for request in long} == {True, False}
    assert all(len(request.prompt) > 2 * SEGMENT for request in long)
    natural = [requests[name].params for name in TEXTS]
    assert {params.n for params in natural} == {1, 2}
    assert all(params.logprobs is not None for params in natural)


def test_answers_follow_their_grammar_or_are_embeddings() -> None:
    alone = Verifier(stories_gguf(), num_requests=1, num_new=24).alone
    for key, answer in alone.items():
        assert answer.error is None
        if key.request.startswith("schema"):
            assert answer.text.startswith('{"name": "')
        elif key.request.startswith("regex"):
            assert re.match("(Mon|Tues|Wednes)day, [0-3][0-9] ", answer.text)
        assert answer.text.startswith("embedding: ") == key.request.endswith("embedding")


def test_little_memory_causes_preemptions() -> None:
    """The scheduler preempts for blocks; no preemption is forced."""
    (condition,) = (condition for condition in QUICK if condition.is_short)
    assert condition.preempt_every is None
    finding = small().run(condition)
    assert finding.num_preemptions > 0
    assert (finding.differences, finding.unmet, finding.is_whole) == ((), (), True)


def test_events_that_did_not_happen_are_reported() -> None:
    few = Verifier(stories_gguf(), num_requests=1, num_new=2)
    few.requests = few.requests[:1]
    finding = few.run(Condition("little memory", memory=0.0, drafter="lookup"))
    assert finding.is_whole
    assert finding.unmet == ("preemption", "cache hit", "draft")


def test_a_slow_variant_gets_a_share_of_the_time() -> None:
    (condition,) = on_variants([TOGETHER], [supported_variants()[-1]], [1])
    little, much = small().run(condition, share_s=1e-9), small().run(condition, share_s=1e9)
    assert (little.num_requests, little.is_whole) == (2, False)
    assert (much.num_requests, much.is_whole) == (len(small().requests), True)
    assert little.differences == much.differences == ()


@pytest.mark.parametrize("num_checks", [0, 3, 60, 100])
def test_a_verifier_that_runs_out_of_time_reports_complete_findings(num_checks: int) -> None:
    """`is_over` becomes true at the `num_checks`-th call: while requests run alone, or under the first conditions."""
    verifier = Verifier(stories_gguf(), num_requests=8, num_new=8)
    num_all = len(verifier.requests)
    count = itertools.count()
    conditions = [TOGETHER, HOSTILE, *QUICK]
    findings = list(verifier.check(conditions, lambda: next(count) >= num_checks))
    assert len(findings) <= 3 < len(conditions)
    assert all(finding.differences == () and finding.num_samples > 0 for finding in findings)
    if num_checks < num_all:
        assert len(verifier.requests) == num_checks
        assert findings == []
    else:
        assert findings
        # How many steps a condition takes depends on the machine, so the time may end between two conditions.
        assert findings[-1].is_whole == (findings[-1].num_samples == len(verifier.alone))
        assert all(finding.is_whole for finding in findings[:-1])


def test_a_changed_embedding_is_detected() -> None:
    expected = dict(small().alone)
    key = SampleKey("embedding", 0)
    text = expected[key].text
    changed = replace(expected[key], text=text[:-1] + ("0" if text[-1] != "0" else "1"))
    (difference,) = differences(expected, expected | {key: changed})
    assert (difference.request, difference.what) == ("embedding", "embedding")
