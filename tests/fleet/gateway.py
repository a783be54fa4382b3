"""A long answer, streamed through a gateway."""

import json

import httpx

from tests.fleet.failover import CHAT, CHAT_PATH
from tests.fleet.running import kill
from tests.server.process import Server

LONG = {**CHAT, "max_tokens": 120, "ignore_eos": True, "seed": 3, "temperature": 1.0}


def streamed(root: str, kill_after: tuple[int, list[Server]] | None = None, key: str = "") -> str:
    """The text of a stream. kill_after: events after which the busy one of these servers is killed."""
    text, count = "", 0
    body, headers = {**LONG, "stream": True}, {"x-api-key": key}
    with httpx.stream("POST", root + CHAT_PATH, json=body, headers=headers, timeout=60) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                count += 1
                text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                if kill_after is not None and count == kill_after[0]:
                    for server in kill_after[1]:
                        kill(server)
    return text
