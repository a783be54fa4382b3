"""A server killed or failed by its disk, again and again: it starts, and answers as one without a cache does."""

import errno
import itertools
import random
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import LLM, SamplingParams
from surefoot.disk_cache import BlockStore
from tests.faults.injector import Fault, environment
from tests.front.many import ManyModels
from tests.server.access.sharing import add_key, quick_key
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

RNG = random.Random(2)
STEMS = [[RNG.randrange(3, 500) for _ in range(200)] for _ in range(3)]
PROMPTS = [[*RNG.choice(STEMS)[: RNG.randrange(20, 200)], RNG.randrange(3, 500)] for _ in range(12)]
TEN_YEARS_S = 10 * 365 * 86_400
OPTIONS = {"max_tokens": 16, "temperature": 0, "logprobs": 1}


@pytest.fixture(scope="module")
def expected() -> list[str]:
    llm = LLM(stories_gguf(), threads=1, speculate="off")
    params = SamplingParams(max_tokens=16, temperature=0)
    return [output.outputs[0].text for output in llm.generate(PROMPTS, params)]


def ask(server: Server, number: int, model: str = "small") -> dict[str, Any]:
    body = {"model": model, "prompt": PROMPTS[number], **OPTIONS}
    reply: dict[str, Any] = httpx.post(f"{server.url}/completions", json=body, timeout=PATIENCE_S).json()
    return reply


def test_prompts_of_a_key_without_disk_cache_never_reach_the_disk(tmp_path: Path) -> None:
    file, folder = tmp_path / "keys.toml", tmp_path / "cache"
    ann = add_key(file, "ann", "--no-disk-cache")
    other, bob = quick_key(file, "ann"), quick_key(file, "bob")
    for keys, is_kept in (((ann, other), False), ((bob,), True)):
        server = Server(stories_gguf(), "--cache-dir", str(folder), "--threads", "1", "--keys", str(file))
        try:
            assert f"is kept in {folder}, not encrypted" in server.log
            for key in keys:
                body = {"prompt": PROMPTS[0] * 4, "model": "small", **OPTIONS}
                headers = {"Authorization": f"Bearer {key}"}
                reply = httpx.post(f"{server.url}/completions", json=body, headers=headers, timeout=PATIENCE_S)
                assert reply.status_code == 200, reply.text
            server.terminate()
            server.process.wait(PATIENCE_S)
        finally:
            server.stop()
        store = BlockStore(folder, 1 << 40)
        assert (store.total_bytes > 0, len(store.holdings())) == (is_kept, int(is_kept))
        store.close()


def check_all(server: Server, expected: list[str]) -> int:
    """Answers must be right; returns how many prompt tokens were cached."""
    replies = [ask(server, number) for number in range(len(PROMPTS))]
    assert [reply["choices"][0]["text"] for reply in replies] == expected
    return sum(reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies)


@dataclass(frozen=True)
class Hardship:
    """What a server's disk and clock do to it."""

    fault: Fault | None = None
    jump_s: int = 0  # of the time of day, at every reading

    def environment(self, below: Path) -> dict[str, str]:
        return environment(self.fault, below, self.jump_s)


def started(
    home: Path, patch: pytest.MonkeyPatch, hardship: Hardship | None = None, cache: str | Path = "auto"
) -> Server:
    """cache: auto for the folder where it looks by itself, in the home: it goes on without where it cannot use it."""
    with patch.context() as context:
        context.setenv("XDG_CACHE_HOME", str(home))
        for name, value in (hardship.environment(home) if hardship is not None else {}).items():
            context.setenv(name, value)
        return Server(stories_gguf(), "--cache-dir", str(cache), "--threads", "1")


class Clients:
    """Ask a server until it is gone."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.answers: list[tuple[int, str]] = []  # and the prompt's number
        self._server = server
        self._answered = threading.Semaphore(0)
        firsts = [rng.randrange(len(PROMPTS)) for _ in range(3)]
        self._threads = [threading.Thread(target=self._ask, args=(first,), daemon=True) for first in firsts]
        for thread in self._threads:
            thread.start()

    def _ask(self, first: int) -> None:
        with suppress(httpx.HTTPError, ValueError):  # a server that is killed ends in the middle of an answer
            for number in itertools.count(first):
                reply = ask(self._server, number % len(PROMPTS))
                choices = reply.get("choices") or [{"text": repr(reply)}]
                self.answers.append((number % len(PROMPTS), choices[0]["text"]))
                self._answered.release()

    def wait_for(self, num_answers: int) -> None:
        for _ in range(num_answers):
            assert self._answered.acquire(timeout=PATIENCE_S), self._server.read()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)


def kill_at_work(server: Server, rng: random.Random, expected: list[str]) -> int:
    """How many answers came before, all of them right."""
    clients = Clients(server, rng)
    clients.wait_for(rng.randrange(1, 25))
    time.sleep(rng.random() / 50)
    server.stop()
    clients.join()
    assert all(text == expected[number] for number, text in clients.answers)
    return len(clients.answers)


def check_afterwards(server: Server, expected: list[str]) -> None:
    try:
        check_all(server, expected)
        assert check_all(server, expected) > 500
        assert server.metric("surefoot:cache_disk_checksum_failures_total") == 0
    finally:
        server.stop()


@pytest.mark.parametrize("num_kills", [2, pytest.param(200, marks=pytest.mark.nightly)])
def test_kills_while_writing(
    tmp_path: Path, expected: list[str], num_kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    num_answers = sum(kill_at_work(started(tmp_path, monkeypatch), rng, expected) for _ in range(num_kills))
    check_afterwards(started(tmp_path, monkeypatch), expected)
    print(f"{num_kills} kills, {num_answers} answers")


@pytest.mark.parametrize("num_kills", [3, pytest.param(200, marks=pytest.mark.nightly)])
def test_kills_while_disk_and_clock_fail(
    tmp_path: Path, expected: list[str], num_kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up, reads fail, the clock jumps; each server has one of it, on what those before it left."""
    rng, num_answers = random.Random(4), Counter[int]()
    for count in range(num_kills):
        hardships = (
            Hardship(Fault(("write",), rng.randrange(1, 80), errno.ENOSPC, lasting=True, torn=True)),
            Hardship(Fault(("read",), rng.randrange(1, 200), errno.EIO, lasting=rng.random() < 0.5)),
            Hardship(jump_s=TEN_YEARS_S),
        )
        server = started(tmp_path, monkeypatch, hardships[count % 3])
        num_answers[count % 3] += kill_at_work(server, rng, expected)
    check_afterwards(started(tmp_path, monkeypatch), expected)
    print(f"{num_kills} kills, answers with a full disk, failing reads, a jumping clock: {num_answers}")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(("write",), 20, errno.ENOSPC, lasting=True, torn=True),
        Fault(("read",), 40, errno.EIO, lasting=True),
        Fault(("open",), 3, errno.EROFS, lasting=True),
    ],
    ids=str,
)
def test_a_disk_that_fails(tmp_path: Path, expected: list[str], fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    server = started(tmp_path, monkeypatch)
    check_all(server, expected)
    server.stop()
    server = started(tmp_path, monkeypatch, Hardship(fault))
    try:
        check_all(server, expected)
        check_all(server, expected)
    finally:
        server.stop()


def test_a_second_server_says_who_uses_the_cache(
    tmp_path: Path, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on without, unless it was told to use that folder."""
    servers = [started(tmp_path, monkeypatch)]
    try:
        servers.append(started(tmp_path, monkeypatch))
        reason = f"process {servers[0].process.pid} uses the cache"
        assert f"prompts are not kept on disk: {reason}" in servers[1].log
        check_all(servers[1], expected)
        folder = tmp_path / "surefoot" / "prompts" / stories_gguf().stem
        with pytest.raises(AssertionError, match=f"the server ended: .*{reason}"):
            started(tmp_path, monkeypatch, cache=folder)
    finally:
        for server in servers:
            server.stop()


def test_a_read_only_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardship = Hardship(Fault(("open",), 1, errno.EROFS, lasting=True))
    server = started(tmp_path, monkeypatch, hardship)
    server.stop()
    assert re.search(r"prompts are not kept on disk: .*Read-only file system", server.log)
    with pytest.raises(AssertionError, match=r"the server ended: .*Read-only file system"):
        started(tmp_path, monkeypatch, hardship, tmp_path / "cache")


@pytest.mark.parametrize("num_fit", [1, 2])
def test_a_model_that_was_swapped_out_finds_its_prompts(tmp_path: Path, expected: list[str], num_fit: int) -> None:
    """Models have folders of their own, so that all that fit can use theirs at once."""
    number, folder = max(range(len(PROMPTS)), key=lambda number: len(PROMPTS[number])), tmp_path / "cache"
    server = ManyModels(tmp_path, num_fit, "--cache-dir", str(folder))
    try:
        replies = [ask(server, number, model) for model in ("a", "b", "a")]
        assert server.num_loads() == 4 - num_fit
    finally:
        server.stop()
    assert [reply["choices"][0]["text"] for reply in replies] == [expected[number]] * 3
    cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert cached == [0, 0, (len(PROMPTS[number]) - 1) // 16 * 16]
    assert [path.name for path in sorted(folder.iterdir())] == ["a", "b"]
