"""The length of an answer depends on model and request alone. On a machine with too little memory an answer ends early
with its own finish reason, after the same tokens."""

from functools import cache

import pytest

from surefoot import LLM, SamplingParams
from tests.stories import stories_gguf

ENDLESS = SamplingParams(seed=3, ignore_eos=True)


@cache
def llm(kv_bytes: int | None = None, max_context: int | None = None) -> LLM:
    return LLM(stories_gguf(), threads=1, max_running=2, kv_bytes=kv_bytes, max_context=max_context, speculate="off")


@cache
def whole() -> tuple[int, ...]:
    (output,) = llm().generate("One day", ENDLESS)
    assert output.outputs[0].finish_reason == "length"
    return output.outputs[0].token_ids


def test_without_max_tokens_an_answer_ends_at_the_models_context() -> None:
    model = llm()
    assert model.context_length == model.config.context == 512
    assert len(whole()) == 512 - len(model.tokenizer.encode("One day"))


@pytest.mark.parametrize("kv_bytes", [500_000, 250_000])
@pytest.mark.parametrize("max_tokens", [None, 400, 10_000])
def test_too_little_memory_has_its_own_finish_reason(kv_bytes: int, max_tokens: int | None) -> None:
    small = llm(kv_bytes)
    assert small.max_context < small.context_length == 512
    (output,) = small.generate("One day", SamplingParams(seed=3, ignore_eos=True, max_tokens=max_tokens))
    (answer,) = output.outputs
    assert answer.finish_reason == "memory"
    assert 0 < len(answer.token_ids) == small.max_context - len(output.prompt_token_ids)
    assert whole()[: len(answer.token_ids)] == answer.token_ids


def test_an_answer_that_fits_is_the_same_on_every_machine() -> None:
    params = SamplingParams(seed=3, ignore_eos=True, max_tokens=60)
    answers = {model.generate("One day", params)[0].outputs[0] for model in (llm(), llm(500_000), llm(250_000))}
    assert [answer.finish_reason for answer in answers] == ["length"]


def test_max_tokens_beyond_the_context_is_clamped() -> None:
    (output,) = llm().generate("One day", SamplingParams(seed=3, ignore_eos=True, max_tokens=100_000))
    assert output.outputs[0].finish_reason == "length"
    assert output.outputs[0].token_ids == whole()


def test_an_operators_max_context_is_a_length() -> None:
    (output,) = llm(max_context=64).generate("One day", ENDLESS)
    assert output.outputs[0].finish_reason == "length"
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 64


def test_prompts_that_can_never_fit_are_refused() -> None:
    small = llm(250_000)
    tokens = [5] * small.max_context
    with pytest.raises(ValueError, match="memory on this machine holds"):
        small.generate(tokens, ENDLESS)
    with pytest.raises(ValueError, match="the context holds 512"):
        llm().generate([5] * 512, ENDLESS)
