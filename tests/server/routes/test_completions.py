"""/v1/completions with echo and logprobs, as evaluation harnesses send it."""

import pytest
from openai import BadRequestError, OpenAI

PROMPT = "The capital of France is Paris, and the capital of Italy is"


def test_echo_gives_the_prompts_logprobs(client: OpenAI) -> None:
    """max_tokens 0: the prompt alone; 1: as lm-eval sends it, which drops the last."""
    alone = client.completions.create(model="small", prompt=PROMPT, max_tokens=0, echo=True, logprobs=3, temperature=0)
    (choice,) = alone.choices
    assert choice.text == PROMPT
    assert alone.usage is not None
    assert alone.usage.completion_tokens == 0
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[0] is None
    assert "".join(logprobs.tokens or ()) == PROMPT
    pairs = zip(logprobs.text_offset or (), logprobs.tokens or (), strict=True)
    assert all(PROMPT[start:].startswith(token) for start, token in pairs)
    one = client.completions.create(model="small", prompt=PROMPT, max_tokens=1, echo=True, logprobs=3, temperature=0)
    longer = one.choices[0].logprobs
    assert longer is not None
    assert longer.token_logprobs is not None
    assert longer.token_logprobs[:-1] == logprobs.token_logprobs
    assert one.choices[0].text.startswith(PROMPT)


def test_token_ids_and_several_prompts(client: OpenAI) -> None:
    prompts = [[504, 3575, 282, 4649], [504, 3575]]
    reply = client.completions.create(
        model="small", prompt=prompts, max_tokens=1, echo=True, logprobs=1, temperature=0, seed=1234
    )
    lengths = [len(choice.logprobs.token_logprobs or ()) for choice in reply.choices if choice.logprobs]
    assert lengths == [5, 3]
    first, second = (choice.logprobs.token_logprobs for choice in reply.choices if choice.logprobs)
    assert first is not None
    assert second is not None
    assert first[:2] == second[:2]


def test_what_does_not_go_together(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="cannot be streamed"):
        client.completions.create(model="small", prompt=PROMPT, echo=True, logprobs=1, stream=True)
    with pytest.raises(BadRequestError, match="max_tokens of 0 needs echo"):
        client.completions.create(model="small", prompt=PROMPT, max_tokens=0)
