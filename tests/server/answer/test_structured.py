"""Answers held to formats, and calls of tools."""

import json
import re
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from tests.server.answer.streams import events, joined
from tests.server.answer.structured import IN_PARIS, SCHEMA, TIME, WEATHER
from tests.server.process import Server
from tests.server.routes.chat import ASK, ask


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_schema(client: OpenAI, seed: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    message = [{"role": "user", "content": "Invent a person, as JSON."}]
    choice = ask(client, messages=message, response_format=wanted, seed=seed, max_tokens=60, temperature=1.5).choices[0]
    assert choice.finish_reason == "stop"
    found = json.loads(choice.message.content)
    assert set(found) == {"name", "age"}
    assert 0 <= found["age"] <= 99


def test_schema_and_company_do_not_show(client: OpenAI) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    several = ask(client, response_format=wanted, seed=7, n=3, max_tokens=60, logprobs=True)
    alone = ask(client, response_format=wanted, seed=7, max_tokens=60, logprobs=True)
    assert several.choices[0].logprobs == alone.choices[0].logprobs
    for choice in several.choices:
        assert set(json.loads(choice.message.content)) == {"name", "age"}


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"type": "json_object"}, r"\{.*"),
        ({"type": "regex", "regex": "(yes|no): [a-z/]{3,9}"}, "(yes|no): [a-z/]{3,9}"),
        ({"type": "grammar", "grammar": 'start: "A" /[0-9]{2}/ "Z"'}, "A[0-9]{2}Z"),
        ({"type": "text"}, ".*"),
    ],
    ids=str,
)
def test_formats(client: OpenAI, wanted: dict[str, Any], pattern: str) -> None:
    content = ask(client, extra_body={"response_format": wanted}).choices[0].message.content
    assert re.fullmatch(pattern, content, re.DOTALL), content


def test_completion_with_a_regex(client: OpenAI) -> None:
    wanted = {"response_format": {"type": "regex", "regex": " (London|Rome)"}}
    reply = client.completions.create(model="small", prompt="The capital of Italy is", extra_body=wanted, temperature=0)
    assert reply.choices[0].text in (" London", " Rome")
    assert reply.choices[0].finish_reason == "stop"


def calls_of(client: OpenAI, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    choice = ask(client, messages=IN_PARIS, max_tokens=80, **more).choices[0]
    assert choice.finish_reason == "tool_calls"
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]


def test_named_tool(client: OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "get_time"}}
    assert calls_of(client, tools=[WEATHER, TIME], tool_choice=choice, temperature=0) == [("get_time", {})]


@pytest.mark.parametrize("seed", [1, 2])
def test_required_tool(client: OpenAI, seed: int) -> None:
    calls = calls_of(client, tools=[WEATHER], tool_choice="required", seed=seed, parallel_tool_calls=False)
    ((name, arguments),) = calls
    assert name == "get_weather"
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert len(arguments["city"]) <= 16


def test_streamed_call_is_the_whole(client: OpenAI) -> None:
    more = {"tools": [WEATHER], "tool_choice": "required", "seed": 5, "parallel_tool_calls": False}
    whole = ask(client, messages=IN_PARIS, max_tokens=80, **more).choices[0].message.tool_calls[0].function
    name, arguments, ends, num_pieces = "", "", [], 0
    for chunk in ask(client, messages=IN_PARIS, max_tokens=80, stream=True, **more):
        choice = chunk.choices[0]
        ends.append(choice.finish_reason)
        for call in choice.delta.tool_calls or ():
            name += call.function.name or ""
            arguments += call.function.arguments
            num_pieces += 1
    assert (name, arguments) == (whole.name, whole.arguments)
    assert num_pieces > 1  # several tokens may come with one pass
    assert ends[-1] == "tool_calls"


def test_resumed_call(server: Server) -> None:
    body = {
        **ASK,
        "messages": IN_PARIS,
        "tools": [WEATHER],
        "tool_choice": "required",
        "stream": True,
        "max_tokens": 60,
        "stream_options": {"include_usage": True},
    }
    whole = events(server, body)
    for place in range(1, len(whole) - 2, 3):
        assert joined(events(server, body, last=whole[place][0])) == joined(whole[place + 1 :])


def test_auto_may_talk(client: OpenAI) -> None:
    """And if it calls, the call fits the schema."""
    for seed in range(3):
        message = ask(client, messages=IN_PARIS, tools=[WEATHER], seed=seed, max_tokens=60).choices[0].message
        assert message.content or message.tool_calls
        for call in message.tool_calls or ():
            assert set(json.loads(call.function.arguments)) == {"city", "unit"}


def test_result_of_a_tool_goes_back(client: OpenAI) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *IN_PARIS,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny, 21 degrees", "tool_call_id": "1"},
    ]
    reply = ask(client, messages=messages, tools=[WEATHER], tool_choice="none", temperature=0)
    assert reply.choices[0].message.content
    assert not reply.choices[0].message.tool_calls


def test_tools_that_may_not_be_called_stay_in_the_prompt(client: OpenAI) -> None:
    asked: dict[str, Any] = {"messages": IN_PARIS, "tools": [WEATHER], "max_tokens": 20, "temperature": 0}
    free = ask(client, **asked)
    reply = ask(client, **asked, tool_choice="none")
    assert reply.usage.prompt_tokens == free.usage.prompt_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens > 0.9 * free.usage.prompt_tokens - 16
    held = ask(client, **asked, tool_choice="none", response_format={"type": "regex", "regex": "Sunny\\."})
    assert held.choices[0].message.content == "Sunny."


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "regex", "regex": "("}}, "response_format"),
        ({"response_format": {"type": "regex", "regex": ".*" * 3000}}, "response_format"),
        ({"response_format": {"type": "grammar", "grammar": "start: " + "x" * 100_000}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "frob"}}}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, None),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": "required"}, None),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "frob"}}}]}, "tools"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refused(server: Server, change: dict[str, Any], param: str | None) -> None:
    reply = httpx.post(f"{server.url}/chat/completions", json={**ASK, **change}, timeout=300)
    assert reply.status_code == 400, reply.text
    assert (reply.json()["error"]["param"] or "").split(".")[0] == (param or "")


def test_client_raises(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="cannot be used"):
        ask(client, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "x"}}})


def test_errors_show_no_grammar(server: Server) -> None:
    schemas = [
        {"type": "frob"}, {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 3}]}, {"$ref": "#/nowhere"},
        {"type": "object", "required": ["a"], "additionalProperties": False}, {"type": "string", "pattern": "("},
    ]  # fmt: skip
    for schema in schemas:
        change = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
        reply = httpx.post(f"{server.url}/chat/completions", json={**ASK, **change}, timeout=300)
        message = reply.json()["error"]["message"]
        assert reply.status_code == 400, reply.text
        assert message.startswith("response_format cannot be used: ")
        for inner in ("%json", "answer:", "start:", "x-guidance", " | "):
            assert inner not in message


def test_format_that_cannot_be_kept_is_refused_by_its_keyword(server: Server) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    change = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    reply = httpx.post(f"{server.url}/chat/completions", json={**ASK, **change}, timeout=300)
    assert reply.status_code == 400
    assert "'uniqueItems'" in reply.json()["error"]["message"]


def test_tool_is_closed_and_what_it_is_not_held_to_is_said(server: Server) -> None:
    parameters = {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}},
    }
    tool = {"type": "function", "function": {"name": "tag", "parameters": parameters}}
    body = {**ASK, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 80}
    for seed in range(3):
        reply = httpx.post(f"{server.url}/chat/completions", json={**body, "seed": seed}, timeout=300)
        assert reply.status_code == 200, reply.text
        assert "'uniqueItems'" in reply.headers["warning"]
        (call,) = reply.json()["choices"][0]["message"]["tool_calls"]
        assert set(json.loads(call["function"]["arguments"])) <= {"tags"}
    with httpx.stream("POST", f"{server.url}/chat/completions", json={**body, "stream": True}, timeout=300) as streamed:
        assert "'uniqueItems'" in streamed.headers["warning"]
    plain = httpx.post(f"{server.url}/chat/completions", json={**ASK, "max_tokens": 1}, timeout=300)
    assert "warning" not in plain.headers
