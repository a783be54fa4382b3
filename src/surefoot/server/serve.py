"""Runs a server of one model."""

import asyncio
import functools
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from surefoot.api.async_llm import SWITCH_S, AsyncLLM
from surefoot.api.llm import LLM
from surefoot.machine.cpu_usage import others_share, usage
from surefoot.server.access.keys import KeyStore
from surefoot.server.app import InFront, make_app
from surefoot.server.banner import describe, describe_speed
from surefoot.server.batch.state import StateFolder
from surefoot.server.channel import FrontLink
from surefoot.server.door import Door
from surefoot.server.metrics import StepMetrics
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings
from surefoot.server.tracing.steps import Watchers
from surefoot.server.tracing.tracer import open_tracer

IDLE_POLL_S = 1.0
NUM_READS = 4  # of 25 ms or so, to measure bandwidth
IDLE_PATIENCE_S = 10.0  # then it is measured between steps, which then wait for it


def serve(
    llm: LLM,
    settings: ServerSettings,
    keys: KeyStore | None,
    state: StateFolder | None,
    fingerprint: str,
    tell: Callable[[str], None],
    sockets: list[socket.socket] | None = None,
    on_ready: Callable[[], None] = lambda: None,
    front: socket.socket | None = None,
    in_front: InFront | None = None,
) -> None:
    """Run until the server is told to end and has drained. tell: prints a line of the banner.

    sockets: bound already (listening.py), so that the address was known to be free before the model was loaded.
    on_ready: called once requests are welcome. front: connected to the front process, if that started this one.
    in_front: of the gate, if the server is one of several.
    """
    door = Door.open(settings, keys)
    settings, connections = door.settings, door.connections
    sys.setswitchinterval(SWITCH_S)
    steps, tracer = StepMetrics(), open_tracer(settings.model_name, tell)
    watcher = steps if tracer is None else Watchers((steps, tracer.watcher))
    service = Service(AsyncLLM(llm, watcher), settings, fingerprint)
    service.tracer, steps.metrics = tracer, service.metrics
    service.metrics.watch("surefoot:connections", "Open connections", lambda: connections.num_open)
    closed = "Waiting connections that were closed to make room"
    service.metrics.watch("surefoot:connections_closed_total", closed, lambda: connections.num_closed)
    link = FrontLink(front, service.llm.use_threads) if front is not None else None
    for line in describe(llm, settings):
        tell(line)
    speed = functools.partial(describe_speed, llm)
    life = ModelServer(service, keys, tell, speed, on_ready, link)
    door.serve(make_app(service, keys, state, link, in_front), life, sockets)


@dataclass
class ModelServer:
    """What a server of one model does at its start, on signals and at its end."""

    service: Service
    keys: KeyStore | None
    tell: Callable[[str], None]
    describe_speed: Callable[[float, float], Iterable[str]]  # for bytes a second, and others' share of the processors
    on_ready: Callable[[], None]
    link: FrontLink | None
    _warming: asyncio.Task[None] | None = None

    @property
    def num_requests(self) -> int:
        return self.service.num_requests

    async def started(self, address: str) -> None:
        self.tell(f"ready    {address}")
        self.on_ready()
        if self.link is not None:
            await self.link.open()
        self._warming = asyncio.create_task(self._warm_up())

    def read_again(self) -> None:
        """Read the keys again and reopen the logs."""
        if self.keys is not None:
            self.keys.reload()
        self.service.audit.reopen()
        self.service.access.reopen()

    async def _warm_up(self) -> None:
        """What can wait until the server is ready: the program of the chat template starts, for the first chat; then
        bandwidth is measured, when no request would wait for it or, on a server that is never idle, between steps."""
        llm = self.service.llm
        with suppress(RuntimeError):  # the first chat tells of it
            await asyncio.to_thread(llm.chat_template.start)
        if self.link is not None:
            return  # other models may be using the memory
        latest = time.monotonic() + IDLE_PATIENCE_S
        while self.service.num_requests and time.monotonic() < latest:
            await asyncio.sleep(IDLE_POLL_S)
        before = usage()
        self.service.bandwidth = await llm.measure_bandwidth(NUM_READS)
        for line in self.describe_speed(self.service.bandwidth, others_share(before, usage())):
            self.tell(line)

    def drain(self) -> None:
        self.service.is_draining = True

    def abort_all(self) -> None:
        """Their clients learn how to resume elsewhere."""
        self.service.llm.abort_all()
