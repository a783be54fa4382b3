"""A real `surefoot serve` or `surefoot fleet gateway` in a process of its own."""

import os
import re
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.cli.process import COMMAND
from tests.fleet.network import Machine
from tests.machine.memory_group import MemoryGroup
from tests.waiting import PATIENCE_S


class Server:
    """Started by its constructor; `url` is there when it is ready."""

    def __init__(
        self,
        model: Path | None,
        *words: str,
        host: str = "127.0.0.1",
        memory_bytes: int | None = None,
        num_files: int | None = None,
        group: MemoryGroup | Machine | None = None,
        command: Sequence[str] = COMMAND,
        verb: Sequence[str] = ("serve",),
        keeps: Sequence[int] = (),
    ) -> None:
        """model: None if the words name models. memory_bytes: the most that its process may map. num_files: that it may
        have open. group: the cgroup or the network that it runs in, with its children; None: the one of this process.
        command: in place of `surefoot`. verb: what it is to do; only servers get folders of their own. keeps:
        descriptors that it inherits."""

        def limit() -> None:
            if group is not None:
                group.enter()
            if num_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, num_files))
            if memory_bytes is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

        state: tuple[str, ...] = (
            () if "--state-dir" in words else ("--state-dir", tempfile.mkdtemp(prefix="surefoot-state-"))
        )
        state += () if "--packed-cache" in words else ("--packed-cache", "off")  # no start leans on one before
        state += () if "--cache-dir" in words else ("--cache-dir", "none")  # nor does an answer
        state = state if "serve" in verb else ()
        named = (str(model), "--model-name", "small") if model is not None else ()
        self.process = subprocess.Popen(
            [*command, *verb, *named, "--port", "0", "--host", host, *state, *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            preexec_fn=limit, pass_fds=keeps,
        )  # fmt: skip
        self.log = ""
        began = time.monotonic()
        found = self.wait_for(r"ready\s+(https?)://\S+?:(\d+)/v1")
        self.ready_s = time.monotonic() - began
        self.root = f"{found[1]}://127.0.0.1:{found[2]}"
        self.url = f"{self.root}/v1"

    def wait_for(self, pattern: str, seconds: float = PATIENCE_S) -> re.Match[str]:
        """The log has it."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.log)) is None:
            assert time.monotonic() < end, f"{pattern} did not come: {self.log}"
            self.read()
            assert self.process.poll() is None or re.search(pattern, self.log), f"the server ended: {self.log}"
        return found

    def read(self) -> str:
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], 0.1)[0]:
            self.log += os.read(self.process.stdout.fileno(), 1 << 16).decode(errors="replace")
        return self.log

    def metric(self, name: str, key: str | None = None) -> float:
        """The sum of a metric's values."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        lines = httpx.get(f"{self.root}/metrics", headers=headers, timeout=60).text.splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if re.match(rf"{name}(\{{|\s)", line)]
        assert values, f"there is no metric {name}"
        return sum(map(float, values))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> str:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=300)
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.log += self.process.stdout.read()
            self.process.stdout.close()
        return self.log
