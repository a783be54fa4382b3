"""litellm, over three of the APIs."""

import litellm
import pytest
from common import ASK, ROOT, TOOL, URL, Person, Weather

ROUTES = {
    "openai": {"model": "openai/small", "api_base": URL, "api_key": "none"},
    "anthropic": {"model": "anthropic/small", "api_base": ROOT, "api_key": "none"},
    "ollama": {"model": "ollama_chat/small", "api_base": ROOT},
}


@pytest.mark.parametrize("route", ROUTES)
def test_chat_whole_and_streamed(route: str) -> None:
    ask = {**ROUTES[route], "messages": ASK, "temperature": 0, "max_tokens": 16, "timeout": 120}
    whole = litellm.completion(**ask)
    assert whole.choices[0].message.content
    chunks = litellm.completion(**ask, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content


@pytest.mark.parametrize("route", ["openai", "anthropic"])
def test_tools(route: str) -> None:
    reply = litellm.completion(
        **ROUTES[route], messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=80, timeout=300
    )
    Weather.model_validate_json(reply.choices[0].message.tool_calls[0].function.arguments)


def test_streamed_tools() -> None:
    chunks = list(
        litellm.completion(
            **ROUTES["openai"], messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=80, timeout=300,
            stream=True,
        )
    )  # fmt: skip
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[:1]
    Weather.model_validate_json(call.function.arguments)


def test_structured() -> None:
    reply = litellm.completion(**ROUTES["openai"], messages=ASK, response_format=Person, max_tokens=80, timeout=300)
    Person.model_validate_json(reply.choices[0].message.content)


def test_embedding_and_text() -> None:
    assert len(litellm.embedding(**ROUTES["openai"], input=["a", "b"]).data) == 2
    ask = {"model": "text-completion-openai/small", "api_base": URL, "api_key": "none"}
    assert litellm.text_completion(**ask, prompt="One, two,", max_tokens=4).choices[0].text
