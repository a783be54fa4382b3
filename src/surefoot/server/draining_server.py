"""uvicorn's server, which drains before it closes its sockets."""

import asyncio
import functools
import logging
import signal
import time
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from surefoot.server.access.connections import Connection, Connections
from surefoot.server.access.tls import Certificate, TlsServer
from surefoot.server.listening import listen
from surefoot.server.settings import ServerSettings

LOG = logging.getLogger(__name__)
HAND_BACK_S = 5  # for clients to receive the error that ends their request
POLL_S = 0.05


class ServerLife(Protocol):
    """What a server does at its start, on signals and at its end."""

    @property
    def num_requests(self) -> int: ...

    async def started(self, address: str) -> None:
        """Requests are welcome at the address."""

    def read_again(self) -> None:
        """On SIGHUP."""

    def drain(self) -> None:
        """Running requests go on; new ones are to be refused. May be called twice."""

    def abort_all(self) -> None:
        """End the requests that are still running."""


def uvicorn_config(app: ASGIApp, settings: ServerSettings, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=functools.partial(Connection, connections),  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=int(connections.limits.idle_s),
        timeout_graceful_shutdown=HAND_BACK_S,
    )


class DrainingServer(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        life: ServerLife,
        drain_s: float,
        connections: Connections,
        certificate: Certificate | None,
        is_held: bool,
    ) -> None:
        """certificate: None for plain HTTP. is_held: a service manager holds the listening sockets too, for the next
        process."""
        super().__init__(config)
        self._life = life
        self._drain_s = drain_s
        self._connections = connections
        self._certificate = certificate
        self._is_held = is_held
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        sockets = sockets or []
        listen(sockets, self.config.backlog)
        await super().startup(sockets if self._certificate is None else [])
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._read_again)
        if self._certificate is not None:
            self._watching = asyncio.create_task(self._certificate.watch())
            for sock in sockets:
                secure = TlsServer(sock, self._connections, self._certificate, self._make_connection)
                self.servers.append(secure)  # type: ignore[arg-type]
        if self.started:
            await self._life.started(self._address())

    def _make_connection(self) -> asyncio.Protocol:
        """As uvicorn makes them for plain HTTP."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _address(self) -> str:
        name = self.servers[0].sockets[0].getsockname()
        if isinstance(name, str):  # of a unix socket
            return name
        host = self.config.host
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{name[1]}/v1"

    def _read_again(self) -> None:
        self._life.read_again()
        if self._certificate is not None:
            self._certificate.reload()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._life.drain()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        """Give running requests drain_s to finish, then abort them.

        Connections are accepted until then, so that /ready can report draining and new requests get a 503. Where a
        service manager holds the sockets, new connections wait for the next process instead.
        """
        self._life.drain()
        for server in self.servers if self._is_held else ():
            server.close()
        LOG.info("draining: %d requests may take %g s more", self._life.num_requests, self._drain_s)
        if not await self._all_end(self._drain_s):
            self._life.abort_all()
            await self._all_end(HAND_BACK_S)
        await super().shutdown(sockets)

    async def _all_end(self, seconds: float) -> bool:
        """Wait for all requests to end. Returns whether they ended in time; a second Ctrl-C ends the wait."""
        end = time.monotonic() + seconds
        while self.server_state.tasks and not self.force_exit:
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(POLL_S)
        return True
