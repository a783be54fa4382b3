"""A fleet on a real Ray cluster of this machine: up, a death, a rolling upgrade under a stream, down."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from surefoot.server import KeyEntry, add_key, hash_of, make_key
from tests.cli.process import COMMAND
from tests.fleet.failover import CHAT_PATH
from tests.fleet.gateway import LONG, streamed
from tests.fleet.running import key_file
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'surefoot[fleet]' (750 MB)")
pytestmark = [pytest.mark.nightly, pytest.mark.long]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A Ray cluster of one node, which ends with the test. On a machine under load Ray may fail to start: it is started
    again then."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        if self._process is None or self._process.poll() is not None:
            ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
            place = ["--node-ip-address=127.0.0.1", f"--port={self.address.rpartition(':')[2]}"]
            folder = f"--temp-dir=/tmp/sf-ray-{os.getpid()}"  # sockets in it have short names
            size = ["--num-cpus=4", "--include-dashboard=false", "--object-store-memory=100000000"]
            environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
            words = [*ray, *place, folder, *size]
            self._process = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.stop()


def fleet(command: str, file: Path) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, "fleet", command, str(file)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def write_file(path: Path, cluster: Cluster, port: int, *more: str) -> None:
    keys = ["--keys", str(path.parent / "keys.toml"), "--model-name", "small"]
    options = [*keys, "--threads", "1", "--max-running", "8", "--cache-dir", "none", *more]
    path.write_text(
        f'model = "{stories_gguf()}"\nkey = "{key_file(path.parent)}"\nreplicas = 2\nport = {port}\n'
        f'ray_address = "{cluster.address}"\noptions = {options}\n'
    )


def is_up(cluster: Cluster, file: Path) -> bool:
    cluster.ensure()
    return fleet("up", file).returncode == 0


def test_up_death_upgrade_down(cluster: Cluster, tmp_path: Path) -> None:
    file, port = tmp_path / "fleet.toml", free_port()
    root = f"http://127.0.0.1:{port}"
    key = make_key()  # Ray knows machines by addresses that others can reach
    add_key(tmp_path / "keys.toml", KeyEntry(hash=hash_of(key), user="alice"))
    write_file(file, cluster, port)
    wait_for(lambda: is_up(cluster, file), "up")
    reply = httpx.post(root + CHAT_PATH, json=LONG, headers={"x-api-key": key}, timeout=PATIENCE_S)
    assert reply.status_code == 200, reply.text
    whole = reply.json()["choices"][0]["message"]["content"]

    before = fleet("status", file)
    assert before.returncode == 0, before
    pids = [int(pid) for pid in re.findall(r"replica-\d .* pid (\d+), 0 restarts", before.stdout)]
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    assert streamed(root, key=key) == whole
    wait_for(lambda: "1 restarts" in (after := fleet("status", file)).stdout and after.returncode == 0, "the restart")

    write_file(file, cluster, port, "--drain-s", "1")
    texts: list[str] = []
    has_ended = threading.Event()

    def ask_on() -> None:
        while not has_ended.is_set():
            texts.append(streamed(root, key=key))

    client = threading.Thread(target=ask_on)
    client.start()
    upgraded = fleet("upgrade", file)
    has_ended.set()
    client.join()
    assert upgraded.returncode == 0, upgraded
    assert re.findall(r"replica-\d: ready", upgraded.stdout) == ["replica-0: ready", "replica-1: ready"]
    assert texts
    assert set(texts) == {whole}

    assert "3 stopped" in fleet("down", file).stdout
    assert fleet("status", file).returncode == 1
    with pytest.raises(httpx.ConnectError):
        httpx.get(root)
