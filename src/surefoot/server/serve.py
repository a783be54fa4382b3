"""Runs the server: binds, serves, and on SIGTERM lets running requests finish or hands them back."""

import asyncio
import functools
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import uvicorn

from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.app import make_app
from surefoot.server.connections import Connection, ConnectionLimits, Connections, raise_file_limit
from surefoot.server.keys import KeyStore
from surefoot.server.listening import bind, check_bind, listen
from surefoot.server.plan import describe, describe_speed
from surefoot.server.service import Service, StepWatch
from surefoot.server.settings import Settings
from surefoot.server.state import StateFolder

LOG = logging.getLogger(__name__)
SWITCH_S = 0.0005  # how long the engine's thread waits for its turn when the loop's thread is busy in Python
HAND_BACK_S = 5  # for clients to be told that their request was ended
POLL_S = 0.05


def serve(
    llm: LLM,
    settings: Settings,
    keys: KeyStore | None,
    state: StateFolder | None,
    fingerprint: str,
    tell: Callable[[str], None],
    sockets: list[socket.socket] | None = None,
) -> None:
    """Returns when the server has been told to end and has drained. tell: gets lines for whoever started it.

    sockets: bound already (listening.py), so that the address was known to be free before the model was loaded.
    """
    check_bind(settings, keys)
    connections = Connections(ConnectionLimits.for_files(raise_file_limit()))
    settings = replace(settings, max_requests=connections.limits.most)
    sys.setswitchinterval(SWITCH_S)
    watch = StepWatch()
    service = Service(AsyncLLM(llm, watch), settings, fingerprint)
    watch.metrics = service.metrics
    service.metrics.watch("surefoot:connections", "Open connections", lambda: connections.num_open)
    closed = "Waiting connections that were closed to make room"
    service.metrics.watch("surefoot:connections_closed_total", closed, lambda: connections.num_closed)
    config = uvicorn.Config(
        make_app(service, keys, state),
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
    for line in describe(llm, settings):
        tell(line)
    DrainingServer(config, service, keys, tell).run(sockets or bind(settings.host, settings.port))


class DrainingServer(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, service: Service, keys: KeyStore | None, tell: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._keys = keys
        self._tell = tell
        self._telling: asyncio.Task[None] | None = None

    async def startup(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        listen(sockets or [], self.config.backlog)
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._read_again)
        if self.started:
            host, port = self.config.host, self.servers[0].sockets[0].getsockname()[1]
            self._tell(f"ready    http://{f'[{host}]' if ':' in host else host}:{port}/v1")
            self._telling = asyncio.create_task(self._tell_speed())

    def _read_again(self) -> None:
        """What SIGHUP asks for: keys from their file, logs into theirs."""
        if self._keys is not None:
            self._keys.reload()
        self._service.audit.reopen()
        self._service.access.reopen()

    async def _tell_speed(self) -> None:
        """Measured when requests are welcome already: memory that was never used takes a while to touch."""
        llm = self._service.llm
        bandwidth = await llm.between_steps(lambda: llm.llm.measure_bandwidth(0.1))
        for line in describe_speed(llm.llm, bandwidth):
            self._tell(line)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.is_draining = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        """Running requests have drain_s to end; then they are ended, and their clients told how to go on elsewhere.

        Until then connections are taken, so that /ready can say why, and new requests are told to go elsewhere.
        """
        self._service.is_draining = True
        drain_s = self._service.settings.drain_s
        LOG.info("draining: %d requests may take %g s more", self._service.num_requests, drain_s)
        if not await self._all_end(drain_s):
            self._service.llm.abort_all()
            await self._all_end(HAND_BACK_S)
        await super().shutdown(sockets)

    async def _all_end(self, seconds: float) -> bool:
        """Whether all that is being answered ends within that time; a second Ctrl-C ends the wait."""
        end = time.monotonic() + seconds
        while self.server_state.tasks and not self.force_exit:
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(POLL_S)
        return True
