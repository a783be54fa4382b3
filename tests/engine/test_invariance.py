"""The exactness contract: every request gets the same ids and the same logprob bits alone and in any batch."""

import functools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surefoot.core import FinishReason
from surefoot.ops import VariantError
from surefoot.ops.backend import NEEDS, choose_variant
from surefoot.sampling import Sampler
from surefoot.verify import ALL, HOSTILE, TOGETHER, Condition, Finding, Verifier, differences, on_variants
from tests.smollm2 import find_file
from tests.stories import stories_gguf

pytestmark = pytest.mark.long


@functools.cache
def stories() -> Verifier:
    return Verifier(stories_gguf(), num_requests=48, num_new=24)


@functools.cache
def few_stories() -> Verifier:
    """For other variants and threads: what company does is tried with many requests."""
    return Verifier(stories_gguf(), num_requests=16, num_new=24)


@functools.cache
def smollm2() -> Verifier:
    return Verifier(find_file(), num_requests=4, num_new=6, longest=160)


def check(verifier: Verifier, condition: Condition) -> Finding:
    if condition.variant is not None:
        try:
            choose_variant(condition.variant)
        except VariantError as lacking:
            pytest.skip(str(lacking))
    finding = verifier.run(condition)
    assert finding.differences == ()
    assert finding.is_whole
    assert finding.num_samples == len(verifier.alone) or condition.is_short
    return finding


def test_requests_of_every_kind_are_answered() -> None:
    requests, alone = stories().requests, stories().alone
    params = [request.params for request in requests]
    assert len(requests) > 48
    assert {each.n for each in params} == {1, 2, 3}
    assert {each.is_greedy for each in params} == {each.changes_logits for each in params} == {True, False}
    assert sum(bool(each.stop) for each in params) == 48 // 4
    assert sum(each.logprobs is None for each in params) >= 48 // 8
    for request in requests:
        for number in range(request.params.n):
            answer = alone[request.id, number]
            assert answer.error is None
            assert answer.finish_reason in (FinishReason.STOP.value, FinishReason.LENGTH.value)
            assert (0 if request.embeds else 1) <= len(answer.token_ids) <= request.params.max_tokens
            assert (answer.logprobs is None) == (request.params.logprobs is None)
    assert {answer.finish_reason for answer in alone.values()} == {"stop", "length"}
    assert len({answer.text for answer in alone.values()}) > 40


def slow_at_night(condition: Condition) -> Any:
    """By day pairs of chunk and block size have blocks of 16, and the portable variant has two threads."""
    is_pair = condition.block_size == 32 and condition.name.startswith("chunks of")
    is_slow = is_pair or (condition.variant, condition.threads) == ("portable", 1)
    return pytest.param(condition, id=condition.name, marks=[pytest.mark.nightly] if is_slow else [])


@pytest.mark.parametrize("condition", map(slow_at_night, ALL))
def test_batching_does_not_change_answers(condition: Condition) -> None:
    finding = check(stories(), condition)
    assert (finding.num_cached > 0) == condition.caching
    assert finding.num_preemptions > 0 or (condition.preempt_every is None and condition.memory > 0)
    assert finding.num_drafted > 0 or condition.drafter is None or condition.governed
    assert (finding.num_accepted > 0) == (condition.drafter not in (None, "wrong")) or condition.governed


@pytest.mark.parametrize("condition", map(slow_at_night, on_variants([TOGETHER, HOSTILE], list(NEEDS), [1, 2])))
def test_variants_and_threads_do_not_change_answers(condition: Condition) -> None:
    check(few_stories(), condition)


@pytest.mark.parametrize(
    "condition",
    [replace(HOSTILE, max_chunk=33), *on_variants([TOGETHER], ["avx2"], [1])],
    ids=lambda condition: condition.name,
)
def test_a_real_model(condition: Condition) -> None:
    check(smollm2(), condition)


@pytest.mark.parametrize(
    "family",
    [
        "gemma3",
        "gemma4",
        "gemma4_moe",
        "gpt_oss",
        "deepseek_v2",
        "qwen3_moe",
        "ministral3",
        "lfm2",
        "qwen3_5",
        "qwen3_5_moe",
        "granitemoehybrid",
        "nemotron_h_moe",
    ],
)
def test_windows_experts_latents_and_states(family: str, tmp_path: Path) -> None:
    pytest.importorskip("tests.models.tiny").save(family, tmp_path)
    verifier = Verifier(tmp_path, num_requests=8, num_new=40)
    windows = verifier.backend(TOGETHER)[0].model.config.windows
    assert max(len(request.prompt) for request in verifier.requests) > max(windows)
    for condition in (TOGETHER, HOSTILE, replace(TOGETHER, preempt_every=2, max_chunk=5, arrivals=1)):
        check(verifier, condition)


@pytest.mark.parametrize("family", ["lfm2", "qwen3_5", "granitemoehybrid", "nemotron_h"])
@pytest.mark.parametrize("drafter", ["wrong", "right until the last"])
def test_drafts_over_states(drafter: str, family: str, tmp_path: Path) -> None:
    """Rejected drafts are rolled back to the state of the last accepted token."""
    pytest.importorskip("tests.models.tiny").save(family, tmp_path)
    verifier = Verifier(tmp_path, num_requests=8, num_new=40)
    finding = check(verifier, replace(TOGETHER, drafter=drafter, preempt_every=3))
    assert finding.num_drafted > 0
    assert (finding.num_accepted > 0) == (drafter != "wrong")


def test_a_changed_bit_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself: in a batch, one logprob of one token is off by its last bit."""
    original = Sampler.draw

    def off(sampler: Sampler, logits: object, draws: list) -> list:
        drawn = original(sampler, logits, draws)
        for index, draw in enumerate(draws):
            logprobs = drawn[index].logprobs
            if len(draws) > 3 and draw.seed == stories().requests[0].params.seed and logprobs is not None:
                (bits,) = struct.unpack("<i", struct.pack("<f", logprobs.logprob))
                (value,) = struct.unpack("<f", struct.pack("<i", bits + 1))
                drawn[index] = drawn[index]._replace(logprobs=logprobs._replace(logprob=value, top=()))
        return drawn

    assert stories().alone
    monkeypatch.setattr(Sampler, "draw", off)
    (difference,) = stories().run(TOGETHER).differences
    assert (difference.request, difference.sample, difference.what) == ("r0", 0, "logprobs")


def test_differences_are_named() -> None:
    expected = dict(stories().alone)
    key = next(key for key, answer in expected.items() if len(answer.token_ids) > 2)
    answer = expected[key]
    changed = replace(answer, token_ids=(*answer.token_ids[:1], -5, *answer.token_ids[2:]))
    (difference,) = differences(expected, expected | {key: changed})
    assert (difference.request, difference.sample, difference.place, difference.what) == (*key, 1, "ids")
    (difference,) = differences(expected, expected | {key: replace(answer, finish_reason="error")})
    assert difference.what.startswith("text")
