"""What clients connect to: a server itself, or a gateway over one. They share their door, and so its tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.running import key_file, num_ready, start_gateway
from tests.server.process import Server
from tests.waiting import wait_for

SERVER, GATEWAY = "server", "gateway"
DOORS = (SERVER, GATEWAY)


@dataclass(frozen=True)
class OpenDoor:
    server: Server  # that clients connect to
    behind: Server | None = None  # a gateway's server

    def stop(self) -> str:
        """The log of what clients were connected to."""
        log = self.server.stop()
        if self.behind is not None:
            self.behind.stop()
        return log


def open_door(
    kind: str,
    model: Path,
    folder: Path,
    *words: str,
    inner: Sequence[str] = (),
    num_files: int | None = None,
    memory_bytes: int | None = None,
) -> OpenDoor:
    """words: for what clients connect to. inner: for the server, wherever it stands. memory_bytes: the most that the
    server may map."""
    if kind == SERVER:
        return OpenDoor(Server(model, *words, *inner, num_files=num_files, memory_bytes=memory_bytes))
    behind = Server(model, "--fleet-key", str(key_file(folder)), *inner, memory_bytes=memory_bytes)
    gateway = start_gateway([behind], folder, *words, num_files=num_files)
    wait_for(lambda: num_ready(gateway) == 1)
    return OpenDoor(gateway, behind)
