"""Tries grammars in a separate process, where an expensive grammar can be killed."""

import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from surefoot.machine.cpu_usage import CpuAllowance
from surefoot.sampling import grammar_checker

SECONDS = 2.0  # of CPU time, for one grammar
START_SECONDS = 30.0  # for the program to start
MEMORY_BYTES = 1 << 30  # address space of the program
MAX_REPLY_BYTES = 1 << 16
CACHE_S = 20.0  # how long a complaint is cached
MAX_CACHED = 256  # complaints


class Trial:
    """Owns the program that tries grammars. It is started on first use, and again after it had to be killed.

    Complaints are cached for a while, so that a client that repeats a bad grammar delays no other client.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()
        self._complaints: OrderedDict[bytes, tuple[float, str]] = OrderedDict()  # by digest: expiry and complaint
        self._process: subprocess.Popen[bytes] | None = None

    def complaint(self, grammar: str) -> str:
        """What is wrong with the grammar; empty if nothing is."""
        digest = hashlib.sha256(grammar.encode(errors="replace")).digest()
        if known := self._cached(digest):
            return known
        with self._lock:
            if known := self._cached(digest):
                return known
            if complaint := self._ask(grammar):
                self._complaints[digest] = time.monotonic() + CACHE_S, complaint
                if len(self._complaints) > MAX_CACHED:
                    self._complaints.popitem(last=False)
            return complaint

    def _cached(self, digest: bytes) -> str:
        until, complaint = self._complaints.get(digest, (0.0, ""))
        return complaint if time.monotonic() < until else ""

    def _ask(self, grammar: str) -> str:
        try:
            process = self._start()
            assert process.stdin is not None
            grammar_checker.send(process.stdin, grammar)
            return _receive(process, SECONDS)
        except TimeoutError:
            self._end()
            return f"it takes more than {SECONDS:g} s to prepare: make it simpler"
        except (OSError, EOFError):
            self._end()
            return "it takes too much memory to prepare: make it simpler"

    def close(self) -> None:
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = _started()
            assert self._process.stdin is not None
            grammar_checker.send(self._process.stdin, json.dumps([piece.hex() for piece in self._pieces]))
            _receive(self._process, START_SECONDS)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with suppress(OSError):  # unsent bytes are left in the buffer
                    stream.close()
            self._process = None

    def __del__(self) -> None:
        self._end()


def _started() -> subprocess.Popen[bytes]:
    """A new process. Raises RuntimeError if the system cannot start one, which is not the grammar's fault."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", grammar_checker.__file__, str(MEMORY_BYTES)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RuntimeError(f"The program that tries grammars does not start ({error!r})") from error


def _receive(process: subprocess.Popen[bytes], seconds: float) -> str:
    allowance = CpuAllowance(process.pid, seconds)
    (length,) = grammar_checker.LENGTH.unpack(_read(process, grammar_checker.LENGTH.size, allowance))
    if length > MAX_REPLY_BYTES:
        raise EOFError
    return _read(process, length, allowance).decode(errors="replace")


def _read(process: subprocess.Popen[bytes], num_bytes: int, allowance: CpuAllowance) -> bytes:
    assert process.stdout is not None
    data = b""
    while len(data) < num_bytes:
        if not _is_readable(process.stdout, allowance.wait_s()):
            continue
        piece = os.read(process.stdout.fileno(), num_bytes - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _is_readable(stream: IO[bytes], seconds: float) -> bool:
    """Whether the stream becomes readable in time. Uses poll: select cannot handle descriptors above 1,023."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
