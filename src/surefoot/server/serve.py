"""Runs the server: binds, serves, and drains on SIGTERM."""

import asyncio
import functools
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import uvicorn

from surefoot.api.async_llm import SWITCH_S, AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.access.connections import Connection, ConnectionLimits, Connections, raise_file_limit
from surefoot.server.access.keys import KeyStore
from surefoot.server.app import make_app
from surefoot.server.banner import describe, describe_speed
from surefoot.server.batch.state import StateFolder
from surefoot.server.listening import bind, check_bind, listen
from surefoot.server.metrics import StepMetrics
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

LOG = logging.getLogger(__name__)
HAND_BACK_S = 5  # for clients to receive the error that ends their request
POLL_S = 0.05
IDLE_POLL_S = 1.0
NUM_READS = 4  # of 25 ms or so, to measure bandwidth


def serve(
    llm: LLM,
    settings: ServerSettings,
    keys: KeyStore | None,
    state: StateFolder | None,
    fingerprint: str,
    tell: Callable[[str], None],
    sockets: list[socket.socket] | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Run until the server is told to end and has drained. tell: prints a line of the banner.

    sockets: bound already (listening.py), so that the address was known to be free before the model was loaded.
    on_ready: called once requests are welcome.
    """
    check_bind(settings, keys)
    connections = Connections(ConnectionLimits.for_files(raise_file_limit()))
    settings = replace(settings, max_requests=connections.limits.most)
    sys.setswitchinterval(SWITCH_S)
    steps = StepMetrics()
    service = Service(AsyncLLM(llm, steps), settings, fingerprint)
    steps.metrics = service.metrics
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
    speed = functools.partial(describe_speed, llm)
    DrainingServer(config, service, keys, tell, speed, on_ready).run(sockets or bind(settings.host, settings.port))


class DrainingServer(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        keys: KeyStore | None,
        tell: Callable[[str], None],
        describe_speed: Callable[[float], Iterable[str]],
        on_ready: Callable[[], None],
    ) -> None:
        """describe_speed: lines of the banner for a memory bandwidth in bytes a second."""
        super().__init__(config)
        self._service = service
        self._keys = keys
        self._tell = tell
        self._describe_speed = describe_speed
        self._on_ready = on_ready
        self._warming: asyncio.Task[None] | None = None

    async def startup(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        listen(sockets or [], self.config.backlog)
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._read_again)
        if self.started:
            host, port = self.config.host, self.servers[0].sockets[0].getsockname()[1]
            self._tell(f"ready    http://{f'[{host}]' if ':' in host else host}:{port}/v1")
            self._on_ready()
            self._warming = asyncio.create_task(self._warm_up())

    def _read_again(self) -> None:
        """On SIGHUP: read the keys again and reopen the logs."""
        if self._keys is not None:
            self._keys.reload()
        self._service.audit.reopen()
        self._service.access.reopen()

    async def _warm_up(self) -> None:
        """What can wait until the server is ready: the program of the chat template starts, for the first chat; then
        bandwidth is measured, while no request would wait for it."""
        llm = self._service.llm
        with suppress(RuntimeError):  # the first chat tells of it
            await asyncio.to_thread(llm.chat_template.start)
        while self._service.num_requests:
            await asyncio.sleep(IDLE_POLL_S)
        for line in self._describe_speed(await llm.measure_bandwidth(NUM_READS)):
            self._tell(line)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.is_draining = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        """Give running requests drain_s to finish, then abort them; their clients learn how to resume elsewhere.

        Connections are accepted until then, so that /ready can report draining and new requests get a 503.
        """
        self._service.is_draining = True
        drain_s = self._service.settings.drain_s
        LOG.info("draining: %d requests may take %g s more", self._service.num_requests, drain_s)
        if not await self._all_end(drain_s):
            self._service.llm.abort_all()
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
