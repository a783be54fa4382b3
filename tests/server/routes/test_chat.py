"""The official client against a real process."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.server.process import Server
from tests.server.routes.chat import ASK, ask


def streamed(client: OpenAI, **more: Any) -> tuple[list[str], list[str | None], Any]:
    """Each answer's text and finish reason, and the usage."""
    texts, ends, usage = [""] * more.get("n", 1), [None] * more.get("n", 1), None
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}, **more):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    return texts, ends, usage


def bits(choice: Any) -> tuple[str, list[float]]:
    return choice.message.content, [one.logprob for one in choice.logprobs.content]


def test_answers(client: OpenAI) -> None:
    reply = ask(client, temperature=0)
    assert reply.choices[0].message.role == "assistant"
    assert "red" in reply.choices[0].message.content.lower()
    assert reply.choices[0].finish_reason in ("stop", "length")
    usage = reply.usage
    assert 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert set(usage.timings_ms) == {"queue", "prefill", "decode"}
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert 0 <= usage.completion_tokens_details.accepted_prediction_tokens < usage.completion_tokens
    assert usage.completion_tokens_details.rejected_prediction_tokens >= 0


def test_stream_is_the_whole(client: OpenAI) -> None:
    whole = ask(client, seed=5, n=3)
    texts, ends, usage = streamed(client, seed=5, n=3)
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_same_request_same_bits_alone_and_in_company(client: OpenAI) -> None:
    wanted = {"seed": 11, "logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.5}
    alone = ask(client, **wanted)
    again = ask(client, **wanted)
    assert bits(alone.choices[0]) == bits(again.choices[0])
    assert alone.choices[0].logprobs == again.choices[0].logprobs
    with ThreadPoolExecutor(9) as pool:
        others = [pool.submit(ask, client, seed=number, temperature=1.5) for number in range(8)]
        together = pool.submit(ask, client, **wanted)
        assert together.result().choices[0].logprobs == alone.choices[0].logprobs
        assert len({other.result().choices[0].message.content for other in others}) > 4
    assert ask(client, **{**wanted, "seed": 12}).choices[0].message != alone.choices[0].message


def test_logprobs(client: OpenAI) -> None:
    content = ask(client, temperature=0, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    for one in content:
        assert one.logprob <= 0
        assert len(one.top_logprobs) == 2
        assert one.top_logprobs[0].token == one.token  # greedy
        assert one.top_logprobs[0].logprob >= one.top_logprobs[1].logprob
        assert bytes(one.bytes).decode(errors="replace") == one.token


def test_stop_string(client: OpenAI) -> None:
    whole = ask(client, temperature=0).choices[0].message.content
    word = whole.split()[3]
    stopped = ask(client, temperature=0, stop=[word]).choices[0]
    assert stopped.message.content == whole[: whole.index(word)]
    assert stopped.finish_reason == "stop"
    texts, ends, usage = streamed(client, temperature=0, stop=[word])
    assert texts == [stopped.message.content]
    assert ends == ["stop"]
    assert usage.completion_tokens < 24


def test_completions(client: OpenAI) -> None:
    both = client.completions.create(
        model="small",
        prompt=["One, two, three,", "The capital of France is"],
        temperature=0,
        max_tokens=6,
        n=2,
        logprobs=1,
    )
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert "four" in both.choices[0].text
    assert "Paris" in both.choices[2].text
    assert both.choices[0].text == both.choices[1].text
    assert both.choices[0].logprobs.tokens[0] in both.choices[0].logprobs.top_logprobs[0]
    chunks = client.completions.create(
        model="small", prompt="The capital of France is", temperature=0, max_tokens=6, stream=True, echo=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == "The capital of France is" + both.choices[2].text


def test_continued_message(client: OpenAI) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two, three,"}]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    reply = ask(client, messages=messages, temperature=0, max_tokens=4, extra_body=more)
    assert "four" in reply.choices[0].message.content


@pytest.mark.parametrize("kind", ["text", "parts"])
def test_forms_of_content(client: OpenAI, kind: str) -> None:
    text = "Say the word yes."
    content = text if kind == "text" else [{"type": "text", "text": text[:8]}, {"type": "text", "text": text[8:]}]
    reply = ask(client, messages=[{"role": "user", "content": content}], temperature=0, seed=1)
    assert reply.usage.prompt_tokens == 35


def test_models_and_tokens(client: OpenAI, server: Server) -> None:
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").max_model_len == 2048


def test_logit_bias_decides(client: OpenAI) -> None:
    more = {"return_token_ids": True}
    reply = ask(client, temperature=0, logit_bias={"504": 100}, max_tokens=4, extra_body=more)
    assert reply.choices[0].token_ids == [504] * 4


def test_tokenize_and_back(server: Server) -> None:
    text = "Grüße, 世界!"
    ids = httpx.post(f"{server.root}/tokenize", json={"prompt": text}).json()
    assert ids["count"] == len(ids["tokens"]) > 0
    assert httpx.post(f"{server.root}/detokenize", json={"tokens": ids["tokens"]}).json() == {"prompt": text}
    chat = httpx.post(f"{server.root}/tokenize", json={"messages": ASK["messages"]}).json()
    assert chat["count"] == 34
