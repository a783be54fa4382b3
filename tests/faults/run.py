"""Every Nth call fails, one after the other: `python -m tests.faults.run`, or a sample with `--every 7`.

After each fault and a start without it, no line may be lost or doubled, and the answers are the bits of a run in peace:
for /v1/batches and for `run-batch`. Runs itself again with the library of faults.c.
"""

import argparse
import asyncio
import errno
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot import LLM
from surefoot.server.batch.run_batch import run_batch
from tests.faults.injector import Fault, Injector, environment
from tests.faults.scenario import REQUESTS, Told, answers_in, check_whole, client, opened
from tests.stories import stories_gguf

DISK = ("write", "sync", "open", "rename", "unlink", "truncate")
FAULTS = (
    *(Fault((kind,), 0, errno.EIO) for kind in DISK[:-1]),
    Fault(("open",), 0, errno.EMFILE),
    Fault(("write",), 0, errno.ENOSPC, torn=True),
    Fault(("write",), 0, errno.ENOSPC, lasting=True, torn=True),
    Fault(("sync",), 0, errno.EIO, lasting=True),
    Fault(DISK, 0, errno.EIO, lasting=True, torn=True),  # the state after a kill at this moment
    Fault(("fork",), 0, errno.EAGAIN),
    Fault(("allocate",), 0, errno.ENOMEM),
)


class LoggedErrors(logging.Handler):
    """Of the run at hand. Without tracebacks: these read the sources, and each call counts."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the calls")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the kind of fault")
    words = parser.parse_args()
    if "LD_PRELOAD" not in os.environ:
        command = [sys.executable, "-m", "tests.faults.run", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment(), check=False).returncode)
    errors = LoggedErrors()
    logging.basicConfig(handlers=[errors])
    Runner(lambda: LLM(stories_gguf(), threads=1), Injector(), errors).run_all(words.every, words.first)


class Runner:
    def __init__(self, make: Callable[[], LLM], injector: Injector, errors: LoggedErrors) -> None:
        self._make = make
        self._llm = make()
        self._injector = injector
        self._errors = errors
        self._peaceful = asyncio.run(self._run_in_peace())
        self._damaged = self._make_damaged()

    async def _run_in_peace(self) -> dict[str, Any]:
        with _folder() as folder:
            async with opened(folder, self._llm) as place:
                record = await place.ended(await place.begin(REQUESTS))
                return place.answers(record)

    def _make_damaged(self) -> bytes:
        """Answers of run-batch with a line that came twice, one with a changed byte, and a torn end."""
        with _folder() as target:
            source = target.with_name("in.jsonl")
            source.write_bytes(REQUESTS)
            run_batch(self._llm, source, target, "small")
            first, second, third, *_ = target.read_bytes().splitlines(keepends=True)
        return first + first + second.replace(b"response", b"rasponse") + third[:-9]

    def run_all(self, every: int, first: int) -> None:
        """Raises the first check's error."""
        for offset, kind in enumerate(FAULTS[first:], first):
            self._run_kind("batch", self._run_batch, kind, every, offset)
            if set(kind.kinds) <= set(DISK):
                self._run_kind("run-batch", self._run_command, kind, every, offset)

    def _run_kind(self, name: str, run: Callable[[Fault, Path], bool], kind: Fault, every: int, offset: int) -> None:
        """run: whether there were as many calls."""
        began, num_runs = time.monotonic(), 0
        for n in itertools.count(1 + offset % every, every):
            fault = replace(kind, n=n)
            self._errors.lines.clear()
            try:
                with _folder() as folder:
                    is_hit = run(fault, folder)
            except BaseException:
                print(f"{name}: not whole after {fault}; it logged: {self._errors.lines}", flush=True)
                raise
            if not is_hit:
                break
            num_runs += 1
        print(f"{num_runs:4} runs, {time.monotonic() - began:5.1f} s: {name}, up to {fault}", flush=True)

    def _run_batch(self, fault: Fault, folder: Path) -> bool:
        if "fork" in fault.kinds:
            self._llm = self._make()  # whose programs have not been started yet
        told = Told()
        is_hit = asyncio.run(self._run_with(fault, folder, told))
        asyncio.run(check_whole(folder, self._llm, told, self._peaceful))
        return is_hit

    def _run_command(self, fault: Fault, folder: Path) -> bool:
        folder.mkdir()
        source, target = folder.parent / "in.jsonl", folder / "out.jsonl"
        source.write_bytes(REQUESTS)
        target.write_bytes(self._damaged)
        self._injector.arm(fault, folder)
        try:
            run_batch(self._llm, source, target, "small")
        except OSError:  # reported; the same command can be repeated
            assert self._injector.num_hits
        finally:
            num_hits = self._injector.num_hits
            self._injector.disarm()
        run_batch(self._llm, source, target, "small")
        assert answers_in(target.read_bytes()) == self._peaceful
        return num_hits > 0

    async def _run_with(self, fault: Fault, folder: Path, told: Told) -> bool:
        self._injector.arm(fault, folder)
        try:
            async with opened(folder, self._llm) as place:
                task = asyncio.create_task(client(place, told, num_tries=3))
                while not task.done() and not (fault.lasting and self._injector.num_hits > 3):
                    await asyncio.sleep(0.005)
                if task.done():
                    await task
                task.cancel()
        except (OSError, MemoryError):  # the folder could not be opened: the server does not start, and says so
            pass
        finally:
            num_hits = self._injector.num_hits
            self._injector.disarm()
        return num_hits > 0


class _folder:
    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="surefoot-fault-"))
        return self._path / "state"

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


if __name__ == "__main__":
    main()
