"""Starts a server process, ours or a peer's, waits until it is ready, and ends it."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.bench.harness.http_load import Endpoint
from surefoot.bench.harness.timing import EngineError

HOST = "127.0.0.1"
SUREFOOT = (sys.executable, "-m", "surefoot")
MODEL_NAME = "bench"
POLL_S = 0.01
END_S = 20.0  # seconds that a server may take to end, before it is killed


@dataclass(frozen=True)
class Launch:
    """How to start a server."""

    command: tuple[str, ...]
    ready_path: str  # answers 200 once the server accepts requests
    environment: Mapping[str, str] = field(default_factory=dict)  # added to our own
    start_s: float = 120.0  # timeout for getting ready
    described: Mapping[str, Any] = field(default_factory=dict)  # facts for the report


@dataclass(frozen=True)
class RunningServer:
    """A server that accepts requests."""

    process: subprocess.Popen[bytes]
    port: int
    ready_s: float  # seconds from the start of the process until it was ready

    def endpoint(self, key: str | None = None) -> Endpoint:
        return Endpoint(HOST, self.port, MODEL_NAME, key)

    def processor_s(self) -> float:
        """Seconds of processor time since its start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_launch(model: str | Path, port: int, *options: str) -> Launch:
    """Starts `surefoot serve` with these options. Nothing is kept on disk: a second run would find the first one's
    prompts."""
    kept = () if "--cache-dir" in options else ("--cache-dir", "none")
    command = (*SUREFOOT, "serve", str(model), "--port", str(port), "--model-name", MODEL_NAME, *kept, *options)
    return Launch(command, "/ready")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(launch: Launch, port: int) -> Iterator[RunningServer]:
    """A server that runs during the block. Raises EngineError with its last line of output if it does not get ready."""
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            launch.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **launch.environment},
        )  # fmt: skip
        try:
            while not _is_ready(port, launch.ready_path):
                if process.poll() is not None or time.perf_counter() - start > launch.start_s:
                    state = "did not get ready" if process.poll() is None else f"ended with code {process.poll()}"
                    raise EngineError(f"the server {state}: {_last_line(log.fileno())}")
                time.sleep(POLL_S)
            yield RunningServer(process, port, time.perf_counter() - start)
        finally:
            _end(process)


def _is_ready(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _last_line(log: int) -> str:
    size = os.fstat(log).st_size
    lines = os.pread(log, 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its whole session, since some servers start other processes."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
