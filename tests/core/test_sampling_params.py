import math

import pytest

from surefoot.core import Request, SamplingParams, sample_seed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", "1"),
        ("top_k", -1), ("top_k", 1.5), ("top_p", 0.0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 1.1),
        ("repetition_penalty", 0.0), ("presence_penalty", 2.1), ("frequency_penalty", -2.1),
        ("logit_bias", {1: 101.0}), ("logit_bias", {-1: 1.0}), ("logit_bias", {1: math.nan}),
        ("logit_bias", dict.fromkeys(range(5000), 1.0)),
        ("stop", ("",)), ("stop", ("a",) * 65), ("stop_token_ids", (-1,)), ("stop_token_ids", tuple(range(65))),
        ("seed", -1), ("seed", 2**64), ("n", 0), ("n", 129), ("n", True), ("max_tokens", 0), ("logprobs", 21),
        ("logprobs", -1), ("min_tokens", -1), ("min_tokens", 1.5),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})


def test_the_bounds_of_ranges_are_allowed() -> None:
    params = SamplingParams(
        temperature=0, top_k=0, top_p=1, min_p=1, presence_penalty=-2, frequency_penalty=2, logit_bias={0: -100},
        seed=2**64 - 1, n=128, max_tokens=1, logprobs=0,
    )  # fmt: skip
    assert params.is_greedy
    assert params.changes_logits
    assert not SamplingParams().changes_logits


def test_stop_ids_are_those_of_model_and_request() -> None:
    request = Request("r", (1,), SamplingParams(stop_token_ids=(5,)), eos_token_ids=frozenset({2}))
    assert request.stop_ids == {2, 5}
    ignoring = Request("r", (1,), SamplingParams(stop_token_ids=(5,), ignore_eos=True), eos_token_ids=frozenset({2}))
    assert ignoring.stop_ids == {5}


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": ()}, {"prompt": (-1,)}, {"prompt": (1, 1.5)}, {"prompt": (True, 5)}, {"priority": 9},
        {"num_public_tokens": 2},
    ],
)  # fmt: skip
def test_requests_are_validated(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"prompt|token|priority"):
        Request(**{"id": "r", "prompt": (1,), **changes})


def test_every_sample_has_its_own_seed() -> None:
    seeds = [sample_seed(seed, sample) for seed in range(100) for sample in range(128)]
    assert len(set(seeds)) == len(seeds)
    assert sample_seed(7, 0) == 7
    # Part of the contract: these never change.
    assert sample_seed(0, 1) == 0xE220A8397B1DCDAF
    assert sample_seed(42, 3) == sample_seed(42, 3) < 2**64
