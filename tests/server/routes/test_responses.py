"""/v1/responses, with the official client."""

import json

import pytest
from openai import BadRequestError, OpenAI

from tests.server.answer.structured import IN_PARIS, SCHEMA
from tests.server.routes.responses import ASK, TOOL


def test_whole_and_streamed(client: OpenAI) -> None:
    whole = client.responses.create(**ASK, instructions="Be brief.")
    assert whole.output_text
    assert whole.usage.output_tokens <= 24
    assert whole.status in ("completed", "incomplete")
    with client.responses.stream(**ASK, instructions="Be brief.") as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] == f"response.{whole.status}"
    text = ""
    for event in client.responses.create(**ASK, instructions="Be brief.", stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == whole.output_text


def test_conversation(client: OpenAI) -> None:
    first = client.responses.create(**ASK)
    more = [{"role": "user", "content": ASK["input"]}, *first.output, {"role": "user", "content": "And one more?"}]
    second = client.responses.create(**{**ASK, "input": more})
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens


def test_schema(client: OpenAI) -> None:
    text = {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA}}
    reply = client.responses.create(**{**ASK, "max_output_tokens": 60}, text=text)
    assert set(json.loads(reply.output_text)) == {"name", "age"}


def test_tool(client: OpenAI) -> None:
    ask = {**ASK, "input": IN_PARIS, "tools": [TOOL], "tool_choice": "required", "max_output_tokens": 60}
    call = client.responses.create(**ask, parallel_tool_calls=False).output[0]
    assert call.type == "function_call"
    assert set(json.loads(call.arguments)) == {"city", "unit"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    assert client.responses.create(**{**ASK, "input": [*IN_PARIS, call, result]}).output_text


def test_nothing_is_kept(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="not kept here"):
        client.responses.create(**ASK, previous_response_id="resp_1")
