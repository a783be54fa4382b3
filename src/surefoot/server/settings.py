"""What the operator can set. Everything has a default that is right for one machine on a trusted network."""

import socket
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """max_queue: requests that may be in the server, running and waiting.

    max_requests: whose head is here, also those whose body is yet to come.
    max_held_bytes: of all bodies of requests that have not ended.
    max_file_bytes: of an upload. max_uploads: of that size that may be on their way to the disk at once.
    model_aliases: other names that clients may call the model by; any_model_name: every name is taken for it.
    strict_parameters: requests with unknown parameters are refused.
    public_prefixes: system messages that hold nothing private, so that all users may share what was computed for them.
    audit_required: a request that the audit log has no room for is refused.
    deadline_s: how long a request may take. drain_s: how long running ones may go on after SIGTERM.
    read_s: for how long a client may send nothing of its request, or not read its answer.
    body_grace_s: after which a body must have come at least_body_rate bytes a second.
    patience_s: a step that takes longer means that the engine is stuck.
    disk_patience_s: how long a batch waits for a disk that is full or fails.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str = "model"
    model_aliases: tuple[str, ...] = ()
    any_model_name: bool = False
    strict_parameters: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    audit_log: Path | None = None
    audit_required: bool = False
    access_log: Path | None = None
    public_prefixes: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    max_held_bytes: int = 256 << 20
    max_file_bytes: int = 64 << 20
    max_uploads: int = 4
    max_queue: int = 256
    max_requests: int = 2048
    deadline_s: float = 600.0
    drain_s: float = 30.0
    read_s: float = 30.0
    body_grace_s: float = 10.0
    least_body_rate: int = 1024
    patience_s: float = 30.0
    disk_patience_s: float = 3600.0

    @property
    def model_names(self) -> tuple[str, ...]:
        """The first is the one that answers give."""
        return tuple(dict.fromkeys((self.model_name, *self.model_aliases)))

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which clients may call this server, besides its addresses."""
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, socket.gethostname(), *self.allowed_hosts))

    @property
    def origins(self) -> frozenset[str]:
        """Web pages that may call this server, besides its own: as browsers write them, or `*` for all."""
        return frozenset(origin.strip().rstrip("/").lower() for origin in self.allowed_origins)
