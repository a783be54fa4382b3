"""Requests as programs send them that cannot be run here (README.md says where they are from): each is answered."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.process import Server

# /infill needs another model: tests/server/routes/test_infill.py sends what editors ask for.
BODIES = [path for path in sorted((Path(__file__).parent / "bodies").glob("*.json")) if "infill" not in path.stem]
# Of these, which ask for more than a test should generate, the first event is enough.
STREAMED = sorted((Path(__file__).parent / "bodies" / "first_event").glob("*.json"))
Events = list[dict[str, Any]]


def events_of(text: str) -> Events:
    """Of server-sent events, or of lines of JSON."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def check_chat(found: Events, streamed: bool) -> None:
    kind = "chat.completion.chunk" if streamed else "chat.completion"
    assert all(event["object"] == kind for event in found)
    ends = [choice["finish_reason"] for event in found for choice in event["choices"]]
    assert ends[-1] in ("stop", "length", "tool_calls")


def check_completion(found: Events, streamed: bool) -> None:
    assert all(choice["finish_reason"] for choice in found[-1]["choices"])


def check_response(found: Events, streamed: bool) -> None:
    assert found[0]["type"] == "response.created"
    assert found[-1]["type"] in ("response.completed", "response.incomplete")
    assert found[-1]["response"]["output"] is not None


def check_message(found: Events, streamed: bool) -> None:
    assert (found[0]["type"], found[-1]["type"]) == ("message_start", "message_stop")
    assert found[-2]["delta"]["stop_reason"] in ("end_turn", "max_tokens", "tool_use")


def check_lines(found: Events, streamed: bool) -> None:
    assert [event["done"] for event in found] == [False] * (len(found) - 1) + [True]


CHECKS: dict[str, Callable[[Events, bool], None]] = {
    "/v1/chat/completions": check_chat,
    "/v1/completions": check_completion,
    "/v1/responses": check_response,
    "/v1/messages": check_message,
    "/v1/messages/count_tokens": lambda found, _: None,
    "/api/chat": check_lines,
    "/api/generate": check_lines,
}


@pytest.mark.parametrize("path", BODIES, ids=[path.stem for path in BODIES])
def test_body_is_answered(path: Path, server: Server) -> None:
    asked = json.loads(path.read_text())
    url = f"{server.root}{asked['route']}{asked['query']}"
    reply = httpx.post(url, json=asked["body"], headers=asked["headers"], timeout=300)
    assert reply.status_code == 200, reply.text
    found = events_of(reply.text)
    assert found
    assert not any("error" in event and event["error"] for event in found), found
    CHECKS[asked["route"]](found, bool(asked["body"].get("stream", asked["route"].startswith("/api/"))))


@pytest.mark.parametrize("path", STREAMED, ids=[path.stem for path in STREAMED])
def test_first_event(path: Path, server: Server) -> None:
    """Closing the stream ends the request. What is ignored of it is named in a header."""
    asked = json.loads(path.read_text())
    url = f"{server.root}{asked['route']}{asked['query']}"
    with httpx.stream("POST", url, json=asked["body"], headers=asked["headers"], timeout=300) as reply:
        assert reply.status_code == 200, reply.read()
        first = next(line for line in reply.iter_lines() if line.startswith("data: "))
        assert "error" not in json.loads(first.removeprefix("data: ")) or '"error":null' in first
        ignored = asked["ignored"]
        assert reply.headers.get("warning") == (ignored and f'199 - "unknown parameter ignored: {ignored}"')
