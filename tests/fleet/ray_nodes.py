"""Machines of a Ray cluster on one machine: each node has a network, process ids and a folder for Ray of its own.

A node's process ids must be its own: `ray start` looks for processes of other nodes on its machine. They also make a
node's death that of a machine: all its processes end at once, with nobody left to tell.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.process import COMMAND
from tests.fleet.network import Machine, own_address
from tests.waiting import PATIENCE_S, wait_for

LONG_S = 3 * PATIENCE_S  # for what starts many processes
PORT, REDIS_PORT = 6379, 6380  # of the head, and of its Redis on this process's address
# The same folder on every node, as on machines of one kind; a node sees its own, which is kept beside its log. The name
# is short since sockets are in it.
FOLDER = "/tmp/sf-ray"
OWN_FOLDERS = f'mkdir -p {FOLDER} "$0" && mount --bind "$0" {FOLDER} && mount -t tmpfs tmpfs /dev/shm'
# Seconds that nodes wait for a head. Ray's own default is 60: a head that starts beside other load may take longer.
PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "300", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass
class RayNode:
    """One machine of the cluster, started by `start`. words: of `ray start`."""

    machine: Machine
    words: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        fixed = (f"--node-ip-address={self.machine.address}", "--block", "--object-store-memory=100000000")
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", *fixed, *self.words)
        # A shell is the first process: it waits for orphans, which Ray would take for running processes.
        shell = ("bash", "-c", f'{OWN_FOLDERS} && "$@"; exit $?', str(self.log.with_suffix(".ray")), *ray)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *shell),
                stdout=log, stderr=log, env={**os.environ, **PATIENT, **self.environment},
                preexec_fn=self.machine.enter, start_new_session=True,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ensure(self) -> None:
        """Start it if it does not run. `ray start` gives up after 30 s, which a busy machine may need."""
        if not self.is_running:
            self.start()

    def kill(self) -> None:
        """End all its processes with SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A `surefoot` command on this machine; it fails if the machine is dead."""
        first = self._first_pid()
        if first is None:
            return subprocess.CompletedProcess(words, 1, "", "the machine is dead")
        enter = ("nsenter", f"--target={first}", "--mount", "--pid", "--net", "--")
        return subprocess.run(
            [*enter, *COMMAND, *words], capture_output=True, text=True, timeout=LONG_S, check=False,
            cwd=Path.cwd(), env={**os.environ, **PATIENT},
        )  # fmt: skip

    def _first_pid(self) -> int | None:
        """Of the first process in the namespace, as this process sees it."""
        if self.process is None or self.process.poll() is not None:
            return None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None


def head_node(machine: Machine, log: Path, *more: str, redis: str = "") -> RayNode:
    """more: words of `ray start`. redis: address of the Redis that keeps Ray's state; empty: none."""
    words = ("--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={FOLDER}", *more)
    return RayNode(machine, words, log, {"RAY_REDIS_ADDRESS": redis} if redis else {})


def worker_node(machine: Machine, head: Machine, log: Path, *more: str) -> RayNode:
    """With one core for Ray to give."""
    return RayNode(machine, (f"--address={head.address}:{PORT}", "--num-cpus=1", *more), log)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its address, as machines see it. It keeps nothing on disk: only Ray's head dies."""
    place = ("--bind", own_address(), "--port", str(REDIS_PORT), "--protected-mode", "no", "--save", "")
    log = folder / "redis.log"
    with log.open("wb") as output:
        process = subprocess.Popen(["redis-server", *place], stdout=output, stderr=output, cwd=folder)
    try:
        wait_for(lambda: b"Ready to accept connections" in log.read_bytes(), "Redis")
        yield f"{own_address()}:{REDIS_PORT}"
    finally:
        process.kill()
        process.wait(PATIENCE_S)
