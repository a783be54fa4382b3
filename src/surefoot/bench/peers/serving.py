"""Serving peers: server processes with OpenAI's API that run under the same load as ours."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from surefoot.bench.harness.http_load import Endpoint
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.server_process import Launch, free_port, running
from surefoot.bench.harness.timing import EngineError

PEERS = ("llamacpp", "openvino", "vllm")  # names of all serving peers
NO_PATH = {"PYTHONPATH": ""}  # a peer's venv must not see our packages
NO_PEER = "takes no part in this run: add --peers"


@dataclass(frozen=True)
class PeerLimits:
    """Limits of a peer's server."""

    threads: int
    num_streams: int  # concurrent requests
    context: int  # tokens of a request
    num_tokens: int  # total over all requests


class ServingPeer(Protocol):
    """An engine with a server. Raises EngineError if it cannot be installed or cannot load the model."""

    @property
    def name(self) -> str: ...
    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        """How to start its server. Installs it and converts the model first, if necessary."""


@dataclass
class StartedPeers:
    """The peers of a run, by name."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)  # facts for the report
    absent: dict[str, str] = field(default_factory=dict)  # reasons, by peer that does not take part


def start_peers(
    stack: ExitStack, peers: Sequence[ServingPeer], model: Path, limits: PeerLimits, say: Say
) -> StartedPeers:
    """Starts all peers at once, so that they can be measured in turns."""
    started = StartedPeers(absent=dict.fromkeys(set(PEERS) - {peer.name for peer in peers}, NO_PEER))
    for peer in peers:
        try:
            port = free_port()
            launch = peer.launch(model, port, limits, say)
            say(f"starting {peer.name}")
            server = stack.enter_context(running(launch, port))
        except (EngineError, OSError) as failure:
            started.absent[peer.name] = str(failure)
            continue
        started.endpoints[peer.name] = server.endpoint()
        started.described[peer.name] = {**launch.described, "ready_s": round(server.ready_s, 2)}
    return started
