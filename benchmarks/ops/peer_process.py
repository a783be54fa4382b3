"""Runs a peer's engine in a process of its own."""

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.bench.peers.install import PeerError

WORKER = Path(__file__).with_name("worker.py")  # in the same folder as the engines' files
# The peer's allocator keeps freed memory, so that results do not cost page faults at every call.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}


class PeerProcess:
    """An engine behind the line protocol of worker.py."""

    def __init__(self, python: Path, engine: Path, threads: int, options: dict[str, Any]) -> None:
        environment = {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": str(threads)}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [str(python), str(WORKER), str(engine), str(threads), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1, env=environment,
        )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a request and returns the reply. Raises PeerError."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"the peer's process ended with code {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply

    def timer(self, key: str, rows: int, calls: int) -> Callable[[], float]:
        """The `run` of a case. The peer times itself, so that communication does not count."""
        return lambda: float(self.ask("run", key=key, rows=rows, calls=calls)["seconds"])

    def close(self) -> None:
        """Ends the process, which exits by itself when its input ends."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
