"""The one way in for servers, fronts and gateways: limits of connections, the gate, draining, request ids."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Scope

from surefoot.server.access.connections import ConnectionLimits, Connections, raise_file_limit
from surefoot.server.access.gate import Gate, unless_draining, with_cors
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import MOST_PATH_CHARACTERS, LineLog
from surefoot.server.access.tls import Certificate
from surefoot.server.draining_server import DrainingServer, ServerLife, uvicorn_config
from surefoot.server.errors import ApiError
from surefoot.server.listening import bind, check_bind, held_sockets
from surefoot.server.settings import ServerSettings


@dataclass(frozen=True)
class Door:
    """An address that is safe to bind, and room for its connections."""

    settings: ServerSettings
    connections: Connections
    certificate: Certificate | None  # None: plain HTTP

    @classmethod
    def open(cls, settings: ServerSettings, keys: KeyStore | None) -> "Door":
        """Raises UnsafeBind if other machines could reach the address and there are no keys, TlsError."""
        check_bind(settings, keys)
        certificate = Certificate(settings.tls_cert, settings.tls_key) if settings.tls_cert is not None else None
        connections = Connections(ConnectionLimits.for_files(raise_file_limit()))
        return cls(replace(settings, max_requests=connections.limits.most), connections, certificate)

    def serve(self, app: ASGIApp, life: ServerLife, sockets: list[socket.socket] | None = None) -> None:
        """Run until the process is told to end and has drained. sockets: bound already."""
        settings = self.settings
        config, is_held = uvicorn_config(app, settings, self.connections), bool(held_sockets())
        server = DrainingServer(config, life, settings.drain_s, self.connections, self.certificate, is_held)
        server.run(sockets or bind(settings.host, settings.port))


def guarded(
    app: ASGIApp,
    settings: ServerSettings,
    keys: KeyStore | None,
    audit: LineLog,
    is_draining: Callable[[], bool],
    count_refusal: Callable[[int], None],
) -> ASGIApp:
    """The application behind the gate, with CORS. Refusals of callers go to the audit log. count_refusal: by status."""

    def on_refusal(scope: Scope, error: ApiError) -> None:
        count_refusal(error.status)
        if error.status in (401, 403):
            route = scope["path"][:MOST_PATH_CHARACTERS]
            audit.write(route=route, client=(scope.get("client") or ("", 0))[0], end=f"{error.status}")

    welcome = unless_draining(app, is_draining, count_refusal)
    return with_cors(Gate(welcome, settings, keys, on_refusal), settings.origins)
