"""A fleet over Ray nodes that are machines of their own, and streams through its gateway."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from surefoot.server import KeyEntry, add_key, hash_of, make_key
from tests.fleet.failover import CHAT, CHAT_PATH
from tests.fleet.network import Machine
from tests.fleet.ray_nodes import LONG_S, PORT, RayNode
from tests.fleet.running import key_file
from tests.smollm2 import find_file
from tests.waiting import PATIENCE_S

GATEWAY_PORT = 8080
# Slow on purpose: something must happen to a stream while it runs.
SERVER_OPTIONS = ("--threads", "1", "--speculate", "off")
MOMENTS = ("id", "created", "timings_ms", "timings")  # of a reply: what no two replies share
GATEWAY_RESOURCE = '--resources={"gateway": 1}'  # of the node with the gateway


@dataclass(frozen=True)
class RayFleet:
    """A fleet's file, and the node with the gateway, where commands are run."""

    file: Path
    node: RayNode
    key: str

    @property
    def root(self) -> str:
        return f"http://{self.node.machine.address}:{GATEWAY_PORT}"

    def up(self) -> bool:
        return self.node.run("fleet", "up", str(self.file)).returncode == 0

    def status(self) -> dict[str, Any]:
        """As `surefoot fleet status --json` tells; empty if it fails."""
        done = self.node.run("fleet", "status", "--json", str(self.file))
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def health(self) -> dict[str, Any]:
        return httpx.get(f"{self.root}/health", timeout=PATIENCE_S).json()


def describe_fleet(folder: Path, head: Machine, node: RayNode, num_replicas: int) -> RayFleet:
    key, file = make_key(), folder / "fleet.toml"
    add_key(folder / "keys.toml", KeyEntry(hash=hash_of(key), user="alice", requests_per_minute=6000, admin=True))
    options = ["--model-name", "small", "--cache-dir", "none", *SERVER_OPTIONS]
    file.write_text(
        f'model = "{find_file()}"\nkey = "{key_file(folder)}"\nreplicas = {num_replicas}\n'
        f'keys = "{folder / "keys.toml"}"\n'
        f'host = "{node.machine.address}"\nport = {GATEWAY_PORT}\ngateway_resource = "gateway"\n'
        f'ray_address = "{head.address}:{PORT}"\noptions = {json.dumps(options)}\n'
    )
    return RayFleet(file, node, key)


def long_request(seed: int, num_tokens: int) -> dict[str, Any]:
    """Prompts differ from their beginning on, so that requests spread over servers."""
    messages = [{"role": "user", "content": f"{seed} little birds lived in the wood. Tell their story."}]
    return {
        **CHAT,
        "messages": messages,
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "seed": seed,
        "temperature": 1.0,
        "stream": True,
    }


@dataclass
class Stream:
    """A stream on a thread of its own. events: as they came, without what no two replies share."""

    root: str
    key: str
    body: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    has_ended: bool = False  # the last event came, [DONE]

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def whole(self) -> list[dict[str, Any]]:
        """All events, once they have come."""
        self._thread.join(LONG_S)
        assert self.has_ended, f"the stream broke after {len(self.events)} events"
        return self.events

    def _read(self) -> None:
        headers = {"x-api-key": self.key}
        with httpx.stream("POST", self.root + CHAT_PATH, json=self.body, headers=headers, timeout=PATIENCE_S) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    self.events.append({name: value for name, value in event.items() if name not in MOMENTS})
                self.has_ended = self.has_ended or line == "data: [DONE]"


def ask_all(root: str, key: str, bodies: Sequence[dict[str, Any]]) -> list[Stream]:
    """Streams that run at once."""
    return [Stream(root, key, body) for body in bodies]
