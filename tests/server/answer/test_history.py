"""Answers are accepted as history, in the form in which clients serialise them."""

from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.server.answer.structured import IN_PARIS, WEATHER
from tests.server.process import Server
from tests.server.routes.chat import ASK, ask
from tests.server.routes.messages import TOOL as CLAUDE_TOOL
from tests.server.routes.responses import ASK as RESPOND
from tests.server.routes.responses import TOOL as RESPONSES_TOOL

CALL: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60}
MORE = {"role": "user", "content": "And one more?"}
LATER: dict[str, Any] = {"temperature": 0, "max_tokens": 4}


def test_a_chat_reply(client: OpenAI) -> None:
    messages: list[Any] = list(ASK["messages"])
    messages.append(ask(client, temperature=0, max_tokens=8).choices[0].message.model_dump())
    assert None in messages[-1].values()
    assert ask(client, messages=[*messages, MORE], **LATER).usage.prompt_tokens > 40


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_reply_with_calls(client: OpenAI, is_streamed: bool) -> None:
    asked = {**ASK, **CALL, "messages": IN_PARIS, "temperature": 0}
    if is_streamed:
        with client.chat.completions.stream(**asked) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.create(**asked).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    for said in (message, message.model_dump(), message.model_dump(exclude_none=True)):
        assert ask(client, messages=[*IN_PARIS, said, result], tools=[WEATHER], **LATER).choices


def test_a_claude_reply(server: Server) -> None:
    claude = Anthropic(base_url=server.root, api_key="none", max_retries=0, timeout=300)
    choice = {"type": "tool", "name": "get_weather"}
    asked = {"model": "small", "max_tokens": 60, "messages": IN_PARIS, "tools": [CLAUDE_TOOL]}
    for more in ({"tool_choice": choice}, {"tool_choice": {"type": "none"}}):
        reply = claude.messages.create(**asked, **more)
        with claude.messages.stream(**asked, **more) as stream:
            streamed = stream.get_final_message()
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "sunny", "cache_control": {"type": "ephemeral"}}
            for block in reply.content
            if block.type == "tool_use"
        ]
        asks = {"role": "user", "content": [*results, {"type": "text", "text": "And tomorrow?", "citations": None}]}
        for content in (reply.content, [one.model_dump() for one in reply.content], reply.model_dump()["content"]):
            messages = [*IN_PARIS, {"role": "assistant", "content": content}, asks]
            assert claude.messages.create(**{**asked, "max_tokens": 2, "messages": messages}).content is not None
            assert claude.messages.count_tokens(model="small", messages=messages).input_tokens > 10
        said = {"role": "assistant", "content": [one.model_dump() for one in streamed.content]}
        assert claude.messages.count_tokens(model="small", messages=[*IN_PARIS, said, MORE]).input_tokens > 10


def test_output_of_a_response(client: OpenAI) -> None:
    asked = {**RESPOND, "input": IN_PARIS, "tools": [RESPONSES_TOOL], "max_output_tokens": 60}
    for choice in ("required", "none"):
        reply = client.responses.create(**asked, tool_choice=choice, parallel_tool_calls=False)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
            for item in reply.output
            if item.type == "function_call"
        ]
        for output in (reply.output, [item.model_dump() for item in reply.output], reply.to_dict()["output"]):
            history = [*IN_PARIS, *output, *results, MORE]
            assert client.responses.create(**{**RESPOND, "input": history, "max_output_tokens": 2}).output is not None


def test_thoughts_and_unknown_keys(server: Server) -> None:
    """What other servers write beside, bounded by the body's size alone."""
    call = {"id": "1", "index": 0, "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}, "extra": None}
    said = {
        "role": "assistant", "content": None, "annotations": [], "audio": None, "function_call": None, "id": "msg_1",
        "provider_specific_fields": {"a": [1]}, "reasoning_details": [{"b": {}}],
        "tool_calls": [{**call, "type": "function"}],
    }  # fmt: skip
    part = {"type": "text", "text": "Go.", "cache_control": {"type": "ephemeral"}, "x" * 1000: "y" * 1000}
    messages = [{"role": "user", "content": [part], "id": "1", "timestamp": 5}, said]
    tool = {"type": "function", "strict": True, "function": {"name": "f", "extra": 1}, "cache_control": {}}
    body = {**ASK, "messages": [*messages, {"role": "tool", "tool_call_id": "1", "content": "1"}], "tools": [tool]}
    reply = httpx.post(f"{server.url}/chat/completions", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    assert "warning" not in reply.headers
    plain = [{"role": "user", "content": "Go."}]
    counts = [
        httpx.post(f"{server.root}/tokenize", json={"messages": one}).json()["count"] for one in (plain, messages[:1])
    ]
    assert counts[0] == counts[1]  # nothing of it reaches the model


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "status": None}


def test_reasoning_items(client: OpenAI) -> None:
    parts = [{"type": "output_text", "text": "Sunny.", "annotations": []}, {"type": "refusal", "refusal": "No."}]
    said = {"type": "message", "role": "assistant", "content": parts, "phase": "final_answer", "id": "msg_1"}
    history = [*IN_PARIS, REASONING, said, MORE]
    assert client.responses.create(**{**RESPOND, "input": history, "max_output_tokens": 2}).usage.input_tokens > 20


def test_another_servers_hidden_thoughts(server: Server) -> None:
    claude = Anthropic(base_url=server.root, api_key="none", max_retries=0, timeout=300)
    said = [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Sunny."},
    ]
    messages = [*IN_PARIS, {"role": "assistant", "content": said}, MORE]
    assert claude.messages.count_tokens(model="small", messages=messages).input_tokens > 10
