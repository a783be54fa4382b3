"""A batch over real servers that are killed meanwhile: no line is lost or doubled, and each has one machine's bits."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from surefoot.fleet.members import Members
from surefoot.fleet.run_batch import FleetAccess, answer_line_on_fleet, run_batch_on_fleet
from surefoot.server.batch.input_lines import read_lines
from surefoot.server.batch.run_batch import patient_context
from surefoot.server.errors import ApiError
from tests.cli.process import COMMAND, run
from tests.fleet.running import KEY, key_file, kill, start_replica
from tests.server.batch.run_batch import CHAT, COMPLETIONS, VARYING
from tests.stories import stories_gguf
from tests.waiting import wait_for

pytestmark = pytest.mark.long

ONE_MACHINE = ("--name", "small", "--pooling", "mean", "--threads", "1")


def write_input(path: Path, num_lines: int) -> Path:
    messages = [{"role": "user", "content": "Once upon a time"}]
    kinds: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": messages, "max_tokens": 30, "logprobs": True, "top_logprobs": 2}),
        (COMPLETIONS, {"prompt": ["One day", "The cat"], "n": 2, "max_tokens": 30, "ignore_eos": True}),
        ("/v1/embeddings", {"input": "One day"}),
        (COMPLETIONS, {"prompt": "a", "top_p": 3}),  # refused
        ("/v1/images", {"prompt": "a"}),  # no server is asked
    ]
    with path.open("w") as file:
        for number in range(num_lines):
            url, body = kinds[number % len(kinds)]
            line = {"custom_id": str(number), "method": "POST", "url": url, "body": {"model": "small", **body}}
            file.write(json.dumps(line) + "\n")
    return path


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Answers by custom_id, without what depends on the moment."""
    replies = [json.loads(line) for line in path.read_text().splitlines()]
    for reply in replies:
        reply.pop("checksum")
        body = reply["response"]["body"]
        for varying in ("created", "system_fingerprint"):
            body.pop(varying, None)
        for name in VARYING:
            body.get("usage", {}).pop(name, None)
    assert len({reply["custom_id"] for reply in replies}) == len(replies), "a line came twice"
    return {reply["custom_id"]: reply for reply in replies}


def test_servers_and_the_command_itself_are_killed(tmp_path: Path) -> None:
    source, here, there = write_input(tmp_path / "in.jsonl", 60), tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    run("run-batch", str(source), str(here), "--model", str(stories_gguf()), *ONE_MACHINE)
    servers = [start_replica(tmp_path), start_replica(tmp_path)]
    words = [word for server in servers for word in ("--fleet", server.root)]
    command = [*COMMAND, "run-batch", str(source), str(there), *words, "--fleet-key", str(key_file(tmp_path))]
    first = subprocess.Popen([*command, "--max-running", "4"], stderr=subprocess.DEVNULL)
    wait_for(lambda: there.exists() and there.read_text().count("\n") >= 12)
    kill(servers[0])
    wait_for(lambda: there.read_text().count("\n") >= 24)
    first.kill()
    first.wait()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=300)
    wanted = read(here)
    assert read(there) == wanted
    assert len(wanted) == 60
    assert sorted({reply["response"]["status_code"] for reply in wanted.values()}) == [200, 400]
    servers[1].stop()


@pytest.mark.nightly
def test_killed_twenty_times(tmp_path: Path) -> None:
    """Three servers, killed in turn; each comes back to its address. If a run ends too early, another one follows."""
    source, here = write_input(tmp_path / "in.jsonl", 1500), tmp_path / "here.jsonl"
    run("run-batch", str(source), str(here), "--model", str(stories_gguf()), *ONE_MACHINE)
    wanted = read(here)
    assert len(wanted) == 1500
    servers = [start_replica(tmp_path) for _ in range(3)]
    command = [*COMMAND, "run-batch", str(source)]
    fleet = [word for server in servers for word in ("--fleet", server.root)] + ["--fleet-key", str(key_file(tmp_path))]
    num_kills = 0
    while num_kills < 20:
        there = tmp_path / f"there-{num_kills}.jsonl"
        running = subprocess.Popen([*command, str(there), *fleet], stderr=subprocess.DEVNULL)
        num_before = num_kills
        while num_kills < 20 and wait_for_lines(there, 20, running):
            place = num_kills % len(servers)
            kill(servers[place])
            servers[place].stop()
            servers[place] = start_replica(tmp_path, "--port", servers[place].root.rpartition(":")[2])
            num_kills += 1
        assert running.wait(3600) == 0
        assert read(there) == wanted
        assert num_kills > num_before, "the run ends before a server can be killed"
    for server in servers:
        server.stop()


def wait_for_lines(file: Path, count: int, running: subprocess.Popen[bytes]) -> bool:
    """Until there are this many more lines. False: the run has ended."""

    def num_lines() -> int:
        return file.read_text().count("\n") if file.exists() else 0

    wanted = num_lines() + count
    wait_for(lambda: num_lines() >= wanted or running.poll() is not None)
    return running.poll() is None


def test_a_line_waits_for_servers_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without servers a line has no answer: it is tried again, and nothing is written."""
    monkeypatch.setattr("surefoot.fleet.failover.WAIT_S", 0.0)
    line = next(read_lines(write_input(tmp_path / "in.jsonl", 1)))

    async def ask() -> None:
        async with httpx2.AsyncClient() as client:
            members = Members(["http://127.0.0.1:9"], KEY, client)
            await answer_line_on_fleet(members, "", line, patient_context(line))

    with pytest.raises(ApiError) as refused:
        asyncio.run(ask())
    assert refused.value.status == 503


def test_an_empty_file_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    access = FleetAccess(["http://127.0.0.1:9"], KEY)
    assert run_batch_on_fleet(access, tmp_path / "in.jsonl", tmp_path / "out.jsonl", None, lambda done, all_: None) == 0
