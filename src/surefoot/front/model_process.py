"""A model's process: a server of one model that listens on a unix socket, started and ended by the front process."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from surefoot.api.footprint import ModelOptions
from surefoot.front.config import ModelEntry
from surefoot.front.proxy import unix_client
from surefoot.server.channel import Channel

END_S = 30.0  # for a process to end after SIGTERM, before it is killed
ERROR_BYTES = 4096  # kept of what a process writes to stderr, to say why it ended
# A program that runs another on some processors only: all of its threads, and the pages that they touch first.
PIN = "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execv(sys.argv[2], sys.argv[2:])"


@dataclass(frozen=True)
class ProcessLauncher:
    """Starts processes of models."""

    folder: Path  # for sockets; nobody else may enter it
    words: tuple[str, ...]  # options that all models share
    on_charge: Callable[[str, float], None]  # of a key's name and a number of tokens

    async def start(self, entry: ModelEntry, number: int) -> "ModelProcess":
        """Start loading a model. number: makes its socket's name unique."""
        path = self.folder / f"{number}.sock"
        listener, (ours, theirs) = _listener(path), socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(entry, self.words, theirs.fileno(), listener.fileno()),
                pass_fds=(theirs.fileno(), listener.fileno()), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        finally:
            for sock in (listener, theirs):
                sock.close()
        channel = Channel(ours)
        await channel.open()
        return ModelProcess(entry, process, channel, unix_client(str(path)), path, self.on_charge)


def _listener(path: Path) -> socket.socket:
    """Bound here, so that its place and its rights are the front's. It listens once the model is loaded."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    return listener


def _command(entry: ModelEntry, words: Sequence[str], channel: int, listener: int) -> list[str]:
    names = [word for name in entry.names for word in ("--model-name", name)]
    behind = ["--behind", f"{channel},{listener},{entry.copy}"]
    options = option_words(entry.options)
    command = [sys.executable, "-m", "surefoot", "serve", entry.file, *names, *options, *words, *behind]
    if entry.node is None:
        return command
    cpus = ",".join(map(str, entry.node.cpus))
    return [sys.executable, "-c", PIN, cpus, *command, "--threads", str(entry.node.threads)]


def option_words(options: ModelOptions) -> list[str]:
    """As words of the command line."""
    values = {
        "--format": options.float_format,
        "--max-context": options.max_context,
        "--max-running": options.max_running,
        "--speculate": options.speculate,
        "--kv-memory": options.kv_bytes,
        "--pooling": options.pooling,
        "--adapter": options.adapter,
        "--chat-template": options.chat_template,
    }
    given = [(option, str(value)) for option, value in values.items() if value is not None]
    return [word for pair in [*given, *(("--sampling", value) for value in options.sampling)] for word in pair]


@dataclass(eq=False)
class ModelProcess:
    """Lives on the event loop. Ends itself if the front process ends."""

    entry: ModelEntry
    process: asyncio.subprocess.Process
    channel: Channel
    client: httpx2.AsyncClient
    path: Path
    on_charge: Callable[[str, float], None]
    _threads: int | None = None  # as the process was last told
    _errors: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._ready: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._reading_messages = asyncio.create_task(self._read_messages())
        self._reading_errors = asyncio.create_task(self._read_errors())

    async def ready(self) -> float:
        """Wait until the model is loaded. Returns the processor time that this took. Raises ChildProcessError if the
        process ends first."""
        ended = asyncio.create_task(self.process.wait())
        either: set[asyncio.Future[Any]] = {self._ready, ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not self._ready.done():
            raise ChildProcessError(await self.why_ended())
        return self._ready.result()

    async def wait(self) -> int:
        """Wait for the process to end, and give back what it held. Returns its exit status."""
        status = await self.process.wait()
        await self._reading_errors
        self._reading_messages.cancel()
        self.channel.close()
        self.path.unlink(missing_ok=True)
        await self.client.aclose()
        return status

    async def why_ended(self) -> str:
        """The last line that the process wrote, or the signal that ended it."""
        status = await self.process.wait()
        await self._reading_errors
        lines = self._errors.decode(errors="replace").strip().splitlines()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return lines[-1].removeprefix("surefoot: ") if lines and status > 0 else how

    def use_threads(self, num_threads: int) -> None:
        if num_threads != self._threads:
            self._threads = num_threads
            self.channel.send(threads=num_threads)

    def signal(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)

    async def end(self) -> None:
        """Ask the process to end, and wait until it has."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_S):
                await self.process.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()

    async def _read_messages(self) -> None:
        async for message in self.channel.messages():
            if "ready" in message and not self._ready.done():
                self._ready.set_result(message["ready"]["processor_s"])
            if charge := message.get("charge"):
                self.on_charge(charge["key"], charge["tokens"])

    async def _read_errors(self) -> None:
        """Pass the process's log on, and keep its end."""
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(1 << 16):
            os.write(sys.stderr.fileno(), data)
            self._errors = (self._errors + data)[-ERROR_BYTES:]
