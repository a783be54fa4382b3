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
    def __init__(self, config: uvicorn.Config, life: ServerLife, drain_s: float) -> None:
        super().__init__(config)
        self._life = life
        self._drain_s = drain_s

    async def startup(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        listen(sockets or [], self.config.backlog)
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._life.read_again)
        if self.started:
            await self._life.started(self._address())

    def _address(self) -> str:
        name = self.servers[0].sockets[0].getsockname()
        if isinstance(name, str):  # of a unix socket
            return name
        host = self.config.host
        return f"http://{f'[{host}]' if ':' in host else host}:{name[1]}/v1"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._life.drain()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        """Give running requests drain_s to finish, then abort them.

        Connections are accepted until then, so that /ready can report draining and new requests get a 503.
        """
        self._life.drain()
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
