"""State: faults at every Nth call. This is the short form; `python -m tests.faults.run` takes them all."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIConnectionError, OpenAI

from surefoot import LLM
from surefoot.server.batch.run_batch import run_batch
from tests.cli.process import COMMAND
from tests.faults.injector import Fault, environment
from tests.faults.scenario import REQUESTS, ROUTE, answers_in
from tests.server.process import Server
from tests.stories import stories_gguf

pytestmark = pytest.mark.long

NUM_LINES = REQUESTS.count(b"\n")


@pytest.mark.nightly  # a race was found here on a busy machine; .ci/nightly runs every call
def test_every_nth_call_fails() -> None:
    """Each kind of fault has its turn, at every sixteenth call: all is whole after a start without it."""
    command = [sys.executable, "-m", "tests.faults.run", "--every", "16"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    num_runs = [int(number) for number in re.findall(r"^ *(\d+) runs", done.stdout, re.MULTILINE)]
    assert sum(num_runs) > 10, done.stdout


def test_run_batch_survives_a_full_disk(tmp_path: Path) -> None:
    """It ends with a sentence, and goes on when there is room."""
    source, folder = tmp_path / "in.jsonl", tmp_path / "full"
    folder.mkdir()
    source.write_bytes(REQUESTS)
    command = [*COMMAND, "run-batch", str(source), str(folder / "out.jsonl"), "--model", str(stories_gguf())]
    fault = Fault(("write",), 3, errno.ENOSPC, lasting=True, torn=True)
    full = subprocess.run(command, env=environment(fault, folder), capture_output=True, text=True, check=False)
    assert full.returncode == 1
    assert f"No space left on device (2 of {NUM_LINES} lines are answered)" in full.stderr
    assert "Traceback" not in full.stderr
    name = stories_gguf().name
    assert run_batch(LLM(stories_gguf(), threads=1), source, folder / "out.jsonl", name) == NUM_LINES - 2
    assert len(answers_in((folder / "out.jsonl").read_bytes())) == NUM_LINES


def served(patch: pytest.MonkeyPatch, fault: Fault, state: Path) -> Server:
    with patch.context() as context:
        for name, value in environment(fault, state).items():
            context.setenv(name, value)
        return Server(stories_gguf(), "--state-dir", str(state))


def wait(client: OpenAI, batch: str, until: Callable[[Any], bool]) -> Any:
    """A connection that is lost on the way is made again."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if until(found := client.batches.retrieve(batch)):
                return found
        except APIConnectionError:
            pass
        time.sleep(0.05)
    raise AssertionError(client.batches.retrieve(batch))


def is_healthy(server: Server) -> bool:
    try:
        return httpx.get(f"{server.root}/health", timeout=300).status_code == 200
    except httpx.TransportError:
        return False


def test_a_server_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch says why it waits, and others are served. Killed and started again with room, it ends with every line,
    though an accept fails on the way."""
    state = tmp_path / "state"
    server = served(monkeypatch, Fault(("write",), 6, errno.ENOSPC, lasting=True, torn=True), state)
    try:
        client = OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
        file = client.files.create(file=("in.jsonl", REQUESTS), purpose="batch").id
        batch = client.batches.create(input_file_id=file, endpoint=ROUTE, completion_window="24h").id
        seen = wait(client, batch, lambda one: one.errors is not None)
        assert (seen.status, seen.errors.data[0].code) == ("in_progress", "storage_unavailable")
        assert "No space left on device" in seen.errors.data[0].message
        refused = httpx.post(f"{server.url}/files", files={"file": ("a", b"x" * 999)}, data={"purpose": "batch"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_unavailable")
        assert client.completions.create(model="small", prompt="Once", max_tokens=2).usage is not None
        os.kill(server.process.pid, signal.SIGKILL)
    finally:
        server.stop()
    server = served(monkeypatch, Fault(("accept",), 2, errno.EMFILE), state)
    try:
        client = OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
        found = wait(client, batch, lambda one: one.status not in ("in_progress", "validating"))
        assert (found.status, found.errors) == ("completed", None)
        files = [found.output_file_id, found.error_file_id]
        lines = b"".join(client.files.content(one).content for one in files)
        assert len(answers_in(lines)) == found.request_counts.total == NUM_LINES
        assert [is_healthy(server) for _ in range(4)].count(True) >= 3, "more than the connection that met the fault"
    finally:
        server.stop()
