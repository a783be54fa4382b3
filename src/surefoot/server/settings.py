"""What the operator can set. Everything has a default that is right for one machine on a trusted network."""

import socket
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """max_queue: requests that may be in the server, running and waiting; max_queue_share: of these, for one user.

    max_held_bytes: of all bodies of requests that have not ended. max_file_bytes: of an upload.
    public_prefixes: system messages that hold nothing private, so that all users may share what was computed for them.
    deadline_s: how long a request may take. drain_s: how long running ones may go on after SIGTERM.
    read_s: how long a client may take to send its request, or not to read its answer.
    patience_s: a step that takes longer means that the engine is stuck.
    disk_patience_s: how long a batch waits for a disk that is full or fails.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str = "model"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    audit_log: Path | None = None
    public_prefixes: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    max_held_bytes: int = 256 << 20
    max_file_bytes: int = 64 << 20
    max_queue: int = 256
    max_queue_share: float = 0.5
    deadline_s: float = 600.0
    drain_s: float = 30.0
    read_s: float = 30.0
    patience_s: float = 30.0
    disk_patience_s: float = 3600.0

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which clients may call this server, besides its addresses."""
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, socket.gethostname(), *self.allowed_hosts))
