"""Messages between the front process and a model's process: JSON objects, one a line, over a pair of sockets."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

MOST_LINE_BYTES = 1 << 16


class Channel:
    """One end. Lives on an event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._sock, limit=MOST_LINE_BYTES)

    def send(self, **message: Any) -> None:
        """Does nothing once the other end is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Until the other end is gone."""
        assert self._reader is not None
        try:
            while line := await self._reader.readline():
                yield json.loads(line)
        except ConnectionError:
            return

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        else:
            self._sock.close()


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
