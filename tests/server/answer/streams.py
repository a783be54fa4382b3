"""Events of a stream, and a server that has nothing left to do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.server.process import Server
from tests.waiting import wait_for


def events(server: Server, body: dict[str, Any], last: str | None = None, most: int = 10**9) -> list[tuple[str, str]]:
    """Ids and data of a stream's events, or of the first so many."""
    found, name = [], ""
    headers = {"Last-Event-ID": last} if last else {}
    with httpx.stream("POST", f"{server.url}/chat/completions", json=body, headers=headers, timeout=300) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("id: "):
                name = line[4:]
            elif line.startswith("data: "):
                found.append((name, line[6:]))
                if len(found) == most:
                    break
    return found


def joined(found: list[tuple[str, str]]) -> dict[str, Any]:
    """What a stream of one answer says. How its text is cut into pieces, when they came and what was guessed ahead may
    differ from run to run."""
    whole: dict[str, Any] = {"text": "", "calls": "", "logprobs": [], "heads": set(), "ends": []}
    assert found[-1][1] == "[DONE]"
    for data in (json.loads(data) for _, data in found[:-1]):
        whole["heads"].add((data["id"], data["created"], data["model"], data["system_fingerprint"]))
        usage = data["usage"] or {}
        whole |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if name in usage}
        for choice in data["choices"]:
            whole["text"] += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                whole["calls"] += (call.get("id") or "") + "".join(call["function"].values())
            whole["logprobs"] += (choice["logprobs"] or {}).get("content") or []
            whole["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    return whole


def wait_until_idle(server: Server) -> None:
    idle = ("vllm:num_requests_running", "vllm:num_requests_waiting", "surefoot:requests_in_server")
    wait_for(lambda: not any(map(server.metric, idle)))
    assert server.metric("vllm:kv_cache_usage_perc") == 0


@contextmanager
def left_undone(server: Server, name: str, most: int) -> Iterator[None]:
    """What is done inside costs less than `most` of a metric: the work of a client that has gone ends."""
    wait_until_idle(server)
    before = server.metric(name)
    yield
    wait_until_idle(server)
    assert server.metric(name) - before < most, "the request went on though its client had gone"
