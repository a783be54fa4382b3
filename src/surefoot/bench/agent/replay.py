"""Sends the turns of agents' sessions to a server, and times them."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from surefoot.bench.agent.session import MAX_NEW, AgentSession, Body, chat_body, messages_body
from surefoot.bench.harness.http_load import MAX_ERROR, Endpoint
from surefoot.bench.harness.timing import EngineError

FORMS: Mapping[str, tuple[str, Callable[[AgentSession, int], Body]]] = {
    "messages": ("/v1/messages", messages_body),
    "chat": ("/v1/chat/completions", chat_body),
}


@dataclass(frozen=True)
class Turn:
    """One request of one user: seconds as the client measured them, tokens as the server counted them."""

    user: int
    number: int  # from 0
    first_s: float  # until the answer began; until its end if it was empty
    seconds: float  # until it ended
    prompt_tokens: int
    cached_tokens: int  # of the prompt
    new_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Of the prompt."""
        return self.prompt_tokens - self.cached_tokens


def play_turn(endpoint: Endpoint, form: str, sessions: Sequence[AgentSession], number: int) -> list[Turn]:
    """Sends one turn of every session at once. Raises EngineError if a request fails."""
    path, make_body = FORMS[form]
    options = {"model": endpoint.model, "max_tokens": MAX_NEW, "temperature": 0, "stream": True}
    bodies = [json.dumps(options | make_body(session, number)).encode() for session in sessions]

    def send(user: int) -> Turn:
        return Turn(user, number, *_send(endpoint, path, bodies[user]))

    with ThreadPoolExecutor(len(sessions)) as pool:
        return list(pool.map(send, range(len(sessions))))


def _send(endpoint: Endpoint, path: str, body: bytes) -> tuple[float, float, int, int, int]:
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
    begin, first_s, usage = time.perf_counter(), None, dict[str, Any]()
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **endpoint.headers})
        response = connection.getresponse()
        if response.status != 200:
            raise EngineError(f"status {response.status}: {response.read(MAX_ERROR).decode(errors='replace')}")
        for event in _events(response):
            if "error" in event:
                raise EngineError(f"an answer ended with an error: {event['error']}")
            if first_s is None and _has_text(event):
                first_s = time.perf_counter() - begin
            usage |= event.get("usage") or event.get("message", {}).get("usage") or {}
    except (OSError, http.client.HTTPException) as failure:
        raise EngineError(f"the connection was lost: {failure}") from failure
    finally:
        connection.close()
    seconds = time.perf_counter() - begin
    if not usage:
        raise EngineError("an answer ended without its usage")
    return (seconds if first_s is None else first_s, seconds, *_tokens(usage))


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def _has_text(event: Mapping[str, Any]) -> bool:
    deltas = [choice["delta"] for choice in event.get("choices", ())]
    return event.get("type") == "content_block_start" or any(
        delta.get("content") or delta.get("tool_calls") for delta in deltas
    )


def _tokens(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Tokens of the prompt, cached ones of these, and tokens of the answer."""
    if "input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached, usage["output_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]
