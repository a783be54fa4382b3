"""Prompt logprobs: equal to those of the same tokens as output, under any schedule."""

from functools import cache

import pytest

from surefoot import LLM, SamplingParams
from surefoot.api.answers import RequestOutput
from tests.stories import stories_gguf

TEXT = "Once upon a time there was a little girl who loved to play with her red ball in the park, and one day"
PARAMS = SamplingParams(temperature=0, max_tokens=3, logprobs=2, prompt_logprobs=2)


@cache
def llm(**options: int) -> LLM:
    return LLM(stories_gguf(), **{"threads": 2, "max_context": 256, **options}, speculate="off")  # type: ignore[arg-type]


@cache
def scored() -> RequestOutput:
    (output,) = llm().generate(TEXT, PARAMS)
    return output


def test_prompt_logprobs_equal_those_of_the_same_tokens_as_output() -> None:
    """A bias forces each token of the prompt in turn, as output after the tokens before it."""
    output = scored()
    answers, tokens = output.prompt_logprobs, output.prompt_token_ids
    assert answers is not None
    assert len(answers) == len(tokens)
    assert answers[0] is None
    for place in range(1, len(tokens), 5):
        forced = SamplingParams(
            temperature=0, max_tokens=1, logprobs=2, logit_bias={tokens[place]: 100.0}, ignore_eos=True
        )
        (answer,) = llm().generate(list(tokens[:place]), forced)[0].outputs
        assert answer.token_ids == (tokens[place],)
        assert answer.logprobs is not None
        assert answers[place] == answer.logprobs[0]


@pytest.mark.parametrize("options", [{"max_chunk": 1}, {"max_chunk": 7}, {"threads": 1}, {"block_size": 32}])
def test_schedules_do_not_change_prompt_logprobs(options: dict[str, int]) -> None:
    model = llm(**options)
    together = model.generate([TEXT, "One day", TEXT], [PARAMS, SamplingParams(seed=1, max_tokens=9), PARAMS])
    again = model.generate(TEXT, PARAMS)
    for output in (together[0], together[2], again[0]):
        assert output.prompt_logprobs == scored().prompt_logprobs
        assert output.outputs == scored().outputs


def test_prompt_logprobs_bypass_the_cache_and_are_shared_by_samples() -> None:
    model = llm()
    plain = model.generate(TEXT, SamplingParams(temperature=0, max_tokens=3, logprobs=2))[0]
    assert plain.prompt_logprobs is None
    assert plain.outputs == scored().outputs
    several = model.generate(TEXT, SamplingParams(seed=4, n=3, max_tokens=5, logprobs=2, prompt_logprobs=2))[0]
    assert several.usage.num_cached == 0
    assert several.prompt_logprobs == scored().prompt_logprobs
    assert len({one.token_ids for one in several.outputs}) > 1


def test_a_preempted_request_is_scored_again() -> None:
    """Little memory: requests are preempted in their prompts and behind them."""
    model = llm(kv_bytes=300_000, max_running=6)
    params = SamplingParams(temperature=0, max_tokens=60, logprobs=2, prompt_logprobs=2, ignore_eos=True)
    (alone,) = llm().generate(TEXT, params)
    together = model.generate([TEXT] * 6, params)
    assert model.engine.load().num_preemptions > 0
    assert {one.prompt_logprobs == alone.prompt_logprobs for one in together} == {True}
    assert {one.outputs == alone.outputs for one in together} == {True}


def test_a_prompt_of_one_token() -> None:
    (output,) = llm().generate([1], PARAMS)
    assert output.prompt_logprobs == (None,)
