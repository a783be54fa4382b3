"""Peers that serve whole models: each a server process with OpenAI's interface, under the same load as ours."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from surefoot.bench.load import Endpoint
from surefoot.bench.server_process import Launch, free_port, running
from surefoot.bench.timing import EngineError

Say = Callable[[str], None]

PEERS = ("llamacpp", "openvino", "vllm")  # all that there are
NO_PATH = {"PYTHONPATH": ""}  # a peer's venv must not see our packages
NO_PEER = "takes no part in this run: add --peers"


def speculating(name: str) -> str:
    """What a peer is called when it speculates: it then runs beside itself."""
    return f"{name} speculating"


@dataclass(frozen=True)
class Room:
    """What a server is given: threads, requests at once, tokens of one request and of all together."""

    threads: int
    num_streams: int
    context: int
    num_tokens: int


class ServingPeer(Protocol):
    """Raises EngineError, saying why, where it cannot be had or cannot load the model."""

    @property
    def name(self) -> str: ...
    def launch(self, model: Path, port: int, room: Room, say: Say) -> Launch:
        """Installs it first, and makes the form of the model that it reads, where that is missing."""


@dataclass
class StartedPeers:
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def start_peers(stack: ExitStack, peers: Sequence[ServingPeer], model: Path, room: Room, say: Say) -> StartedPeers:
    """All of them at once, so that they can be measured in turns."""
    started = StartedPeers(absent=dict.fromkeys(set(PEERS) - {peer.name for peer in peers}, NO_PEER))
    for peer in peers:
        try:
            port = free_port()
            launch = peer.launch(model, port, room, say)
            say(f"starting {peer.name}")
            server = stack.enter_context(running(launch, port))
        except (EngineError, OSError) as failure:
            started.absent[peer.name] = str(failure)
            continue
        started.endpoints[peer.name] = server.endpoint()
        started.described[peer.name] = {**launch.described, "ready_s": round(server.ready_s, 2)}
    return started
