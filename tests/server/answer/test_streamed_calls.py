"""Streamed tool calls, assembled by the clients' own helpers."""

import json
from collections import Counter
from typing import Any

import httpx
from openai import OpenAI

from tests.server.answer.structured import IN_PARIS, TIME, WEATHER
from tests.server.process import Server
from tests.server.routes.chat import ASK, ask

CALL: dict[str, Any] = {"tools": [WEATHER, TIME], "tool_choice": "required", "seed": 5, "max_tokens": 80}


def test_the_clients_helper_gets_the_whole_calls(client: OpenAI) -> None:
    whole = ask(client, messages=IN_PARIS, **CALL).choices[0]
    with client.chat.completions.stream(**{**ASK, **CALL, "messages": IN_PARIS}) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == whole.finish_reason

    def facts(message: Any) -> list[tuple[str, str]]:
        return [(call.function.name, call.function.arguments) for call in message.tool_calls]

    assert facts(final.message) == facts(whole.message)
    assert json.loads(final.message.tool_calls[0].function.arguments) is not None


def test_no_event_has_two_entries_for_one_call(server: Server) -> None:
    body = {**ASK, **CALL, "messages": IN_PARIS, "stream": True}
    reply = httpx.post(f"{server.url}/chat/completions", json=body, timeout=300)
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    entries = [json.loads(line)["choices"][0]["delta"].get("tool_calls", []) for line in lines]
    assert any(entries)
    for event in entries:
        assert not event or max(Counter(entry["index"] for entry in event).values()) == 1
