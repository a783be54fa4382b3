"""Runs the server: binds, serves, and on SIGTERM lets running requests finish or hands them back."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.app import make_app
from surefoot.server.keys import KeyStore
from surefoot.server.plan import describe, describe_speed
from surefoot.server.service import Service, StepWatch
from surefoot.server.settings import Settings
from surefoot.server.state import StateFolder

LOG = logging.getLogger(__name__)
SWITCH_S = 0.0005  # how long the engine's thread waits for its turn when the loop's thread is busy in Python
MOST_CONNECTIONS = 2048


class UnsafeBind(ValueError):
    """The server would be open to others without keys."""


def serve(
    llm: LLM,
    settings: Settings,
    keys: KeyStore | None,
    state: StateFolder | None,
    fingerprint: str,
    tell: Callable[[str], None],
) -> None:
    """Returns when the server has been told to end and has drained. tell: gets lines for whoever started it."""
    check_bind(settings, keys)
    sys.setswitchinterval(SWITCH_S)
    watch = StepWatch()
    service = Service(AsyncLLM(llm, watch), settings, fingerprint)
    watch.metrics = service.metrics
    config = uvicorn.Config(
        make_app(service, keys, state),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.drain_s) + 5,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=64 << 10,
    )
    for line in describe(llm, settings):
        tell(line)
    DrainingServer(config, service, keys, tell).run()


def check_bind(settings: Settings, keys: KeyStore | None) -> None:
    if not settings.is_loopback and not keys:
        raise UnsafeBind(
            f"{settings.host} can be reached from elsewhere, which needs keys: make one with `surefoot keys add "
            "keys.toml --user NAME`, then start with --keys keys.toml"
        )


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
        await super().startup(sockets)
        if self._keys is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._keys.reload)
        if self.started:
            host, port = self.config.host, self.servers[0].sockets[0].getsockname()[1]
            self._tell(f"ready    http://{f'[{host}]' if ':' in host else host}:{port}/v1")
            self._telling = asyncio.create_task(self._tell_speed())

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
        """Running requests have drain_s to end; then they are ended, and their clients told how to go on elsewhere."""
        self._service.is_draining = True
        LOG.info("draining: %d requests may take %g s more", self._service.num_requests, self._service.settings.drain_s)
        ending = asyncio.create_task(self._end_requests())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_requests(self) -> None:
        await asyncio.sleep(self._service.settings.drain_s)
        self._service.llm.abort_all()
