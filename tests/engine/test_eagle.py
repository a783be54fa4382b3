"""What is particular to a published head: its list of tokens, targets of all kinds, grammars and penalties."""

import random
from collections.abc import Mapping

import numpy as np
import pytest

from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.models import Model
from surefoot.runner import LayerDrafter
from surefoot.speculate import Speculator
from surefoot.weights import GgufFile
from tests.engine import engine as stories
from tests.engine import speculation as stories_speculation
from tests.engine.drafting import HEAD, attached, model, opened, requests, run, tiny, tiny_eagle, with_tiny_head
from tests.engine.speculation import FixedDepth
from tests.stories import stories_gguf


@pytest.fixture(scope="module")
def stories_model() -> Model:
    """A target with a tokenizer, and a head that is mostly wrong."""
    file = GgufFile(stories_gguf())
    table = file.floats("token_embd.weight")
    return attached(stories.backend(), stories.model(), tiny_eagle.make_head(table, table, ids=range(0, len(table), 3)))


@pytest.mark.parametrize("name", ["mistral", "gemma3", "gpt_oss", "qwen3_5"])
def test_targets_with_windows_experts_or_states(name: str) -> None:
    """The head's keys and values are of a group of their own, or share one; its row stands beside other states."""
    target, asked = with_tiny_head(name), requests()[:6]
    answers, usages = run(opened(target, 3), asked)
    assert answers == run(opened(target, 0), asked)[0]
    assert sum(usage.num_drafted for usage in usages) > 50


@pytest.mark.parametrize("depth", [2, 9])
def test_with_penalties_filters_and_several_samples(stories_model: Model, depth: int) -> None:
    engine = opened(stories_model, depth, on=stories.backend())
    assert run(engine, stories.requests())[0] == stories.expected()


def test_with_grammars(stories_model: Model) -> None:
    engine = opened(stories_model, 3, grammars=stories_speculation.grammars(), on=stories.backend())
    assert run(engine, stories_speculation.grammar_requests())[0] == stories_speculation.grammar_answers()


def test_only_listed_tokens_are_drafted() -> None:
    engine = opened(model(HEAD), 5)
    drafted: list[int] = []

    class Watched(LayerDrafter):
        def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
            drafts = super().draft(depths)
            drafted.extend(token for tokens in drafts.values() for token in tokens)
            return drafts

    engine._executor._speculator = Speculator(Watched(engine._executor.runner), FixedDepth(5))  # type: ignore[attr-defined,arg-type]
    run(engine, requests()[:6])
    assert len(drafted) > 50
    assert not np.any(np.array(drafted) % 2), "the head's list has every second token"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_at_random(seed: int) -> None:
    """Hundreds of samples at random depths, lengths and shares of a prompt."""
    rng, made = random.Random(seed), list[Request]()
    for number in range(24):
        prompt = tuple(requests()[0].prompt[: rng.randrange(1, 60)]) + tuple(
            rng.randrange(tiny.VOCAB) for _ in range(rng.randrange(1, 90))
        )
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.3, 1.0]), seed=rng.randrange(99), max_tokens=rng.randrange(1, 90),
            logprobs=1, n=rng.choice([1, 1, 3]), ignore_eos=True,
        )  # fmt: skip
        made.append(Request(str(number), prompt, params))
    assert run(opened(model(HEAD), rng.randrange(1, 12)), made)[0] == run(opened(model(HEAD), 0), made)[0]
