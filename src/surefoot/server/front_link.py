"""A model's process and the front process that started it."""

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable

from surefoot.server.channel import Channel


class FrontLink:
    """Tells the front of readiness and of tokens, and takes its orders. If the front is gone, the process ends too."""

    def __init__(self, sock: socket.socket, use_threads: Callable[[int], Awaitable[None]]) -> None:
        self._channel = Channel(sock)
        self._use_threads = use_threads
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Requests are welcome from now on."""
        await self._channel.open()
        self._reading = asyncio.create_task(self._obey())
        self._channel.send(ready={"processor_s": time.process_time()})

    def charge(self, key: str, num_tokens: float) -> None:
        self._channel.send(charge={"key": key, "tokens": num_tokens})

    async def _obey(self) -> None:
        async for message in self._channel.messages():
            if "threads" in message:
                await self._use_threads(message["threads"])
        signal.raise_signal(signal.SIGTERM)
