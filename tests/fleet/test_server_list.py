"""Servers that come and go while the gateway runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from surefoot.fleet.frames import ReplicaState
from surefoot.fleet.members import Members
from surefoot.fleet.request_names import PromptText
from surefoot.fleet.router import NoReplica
from surefoot.fleet.server_list import follow_servers, read_servers, write_servers
from tests.waiting import PATIENCE_S

PROMPT = PromptText((), 1)


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "servers"
    write_servers(file, ["http://a:1", "http://b:1"])
    assert read_servers(file) == ["http://a:1", "http://b:1"]
    file.write_text("# ours\n\n http://a:1 \n")
    assert read_servers(file) == ["http://a:1"]


def answering(request: httpx2.Request) -> httpx2.Response:
    state = ReplicaState(boot="1", identity="same", is_draining=False, patience_s=2.0, backlog_tokens=0, token_ms=1.0)
    return httpx2.Response(200, stream=httpx2.ByteStream(state.model_dump_json().encode()))


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.01)


def test_a_server_joins_and_leaves_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.fleet.server_list.READ_S", 0.01)
    monkeypatch.setattr("surefoot.fleet.members.REPORT_S", 0.01)
    file = tmp_path / "servers"

    async def live() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answering)) as client:
            members = Members([], "key", client)
            tasks = [asyncio.ensure_future(work) for work in (members.watch(), follow_servers(file, members))]
            write_servers(file, ["http://a:1", "http://b:1/"])
            await until(lambda: members.num_ready == 2)
            write_servers(file, ["http://b:1"])
            await until(lambda: members.num_ready == 1)
            assert {members.choose(PROMPT)[0].url for _ in range(4)} == {"http://b:1"}
            file.unlink()  # cannot be read: all stays as it is
            await asyncio.sleep(0.05)
            assert members.num_ready == 1
            write_servers(file, ["http://a:1"])
            await until(lambda: [member.is_ready for member in members.all] == [True, False])
            write_servers(file, [])
            await until(lambda: members.num_ready == 0)
            with pytest.raises(NoReplica):
                members.choose(PROMPT)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(live())
