"""The operator's settings. The defaults suit one machine on a trusted network."""

import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerSettings:
    """How the server listens, what it accepts, and how long things may take."""

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str = "model"
    model_aliases: tuple[str, ...] = ()  # other names that clients may use for the model
    any_model_name: bool = False  # accept every name for the model
    strict_parameters: bool = False  # refuse requests with unknown parameters
    allowed_hosts: tuple[str, ...] = ()  # further names in the Host header
    allowed_origins: tuple[str, ...] = ()  # of web pages that may call the server
    tls_cert: Path | None = None  # None: plain HTTP
    tls_key: Path | None = None  # None: it stands in the certificate's file
    audit_log: Path | None = None
    audit_required: bool = False  # refuse requests that the audit log cannot record
    access_log: Path | None = None
    public_prefixes: tuple[str, ...] = ()  # system messages or requests, whose cached prefix all users share
    max_body_bytes: int = 4 << 20  # of a request, but for uploads
    max_held_bytes: int = 256 << 20  # of the bodies of all requests that have not ended
    max_file_bytes: int = 64 << 20  # of an upload
    max_uploads: int = 4  # uploads of that size on their way to the disk at once
    max_queue: int = 256  # requests in the server, running and waiting
    max_requests: int = 2048  # requests whose head has arrived, also those whose body has not
    deadline_s: float = 600.0  # how long a request may take
    drain_s: float = 30.0  # how long running requests may go on after SIGTERM
    read_s: float = 30.0  # how long a client may pause in sending its request or reading its answer
    body_grace_s: float = 10.0  # after which a body must arrive at least_body_rate
    least_body_rate: int = 1024  # bytes per second
    patience_s: float = 30.0  # a step that takes longer means that the engine is stuck
    disk_patience_s: float = 3600.0  # how long a batch waits for a full or failing disk

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """All names of the model; replies give the first."""
        return tuple(dict.fromkeys((self.model_name, *self.model_aliases)))

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def hosts(self) -> frozenset[str]:
        """Names that the Host header may have, besides addresses."""
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, socket.gethostname(), *self.allowed_hosts))

    @property
    def origins(self) -> frozenset[str]:
        """Origins of other web pages that may call this server, as browsers write them; `*` allows all."""
        return frozenset(origin.strip().rstrip("/").lower() for origin in self.allowed_origins)
