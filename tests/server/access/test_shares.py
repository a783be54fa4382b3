"""Every budget that users share: one user takes all that they may, another is served. docs/design/server.md has the
table; each of its rows names a test."""

import asyncio
import io
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.access.gate import BoundedBody, Gate, send_error
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.shares import EVERYONE, Caller, SharedBudget, Turns, asking_user
from surefoot.server.answer.structured import AskedAnswer, constrain
from surefoot.server.batch import files
from surefoot.server.batch.lines import Slots
from surefoot.server.batch.state import StateFolder
from surefoot.server.errors import ApiError
from surefoot.server.prompts import LONG_CHARACTERS, SHORT_THREADS, Encoding
from surefoot.server.schemas.base import GrammarFormat
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings
from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

TESTS = Path(__file__).parents[2]
TABLE = TESTS.parent / "docs" / "design" / "server.md"


def test_every_budget_has_a_test() -> None:
    """Each row of the table ends with one that is there."""
    section = TABLE.read_text().partition("## Budgets")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line[:2] == "| "]
    assert len(rows) > 10
    sources = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    for row in rows[1:]:
        names = re.findall(r"`(test_\w+)", row[-2])
        assert names, row
        for name in names:
            assert f"def {name}(" in sources, name


# ---- budgets ----


@given(st.integers(1, 10_000), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500)), max_size=60))
def test_a_budget_keeps_its_total(total: int, takes: list[tuple[str, int]]) -> None:
    budget, held = SharedBudget(total), {"a": 0, "b": 0, "c": 0}
    for user, amount in takes:
        left_by_others = total - sum(held.values()) + held[user]
        fits = held[user] + amount <= (left_by_others + 1) // 2
        assert budget.take(user, amount) == fits
        held[user] += amount * fits
        assert budget.num_held == sum(held.values()) <= total
        assert budget.held_by(user) == held[user]
    for user, amount in held.items():
        budget.give_back(user, amount)
    assert budget.num_held == 0


@given(st.integers(1, 1000))
def test_one_user_has_half_the_next_half_of_the_rest(total: int) -> None:
    budget = SharedBudget(total)
    for user in "abc":
        free = total - budget.num_held
        while budget.take(user):
            pass
        assert budget.held_by(user) == (free + 1) // 2


def test_without_keys_everyone_is_one_user_who_has_all() -> None:
    budget = SharedBudget(4)
    assert [budget.take(EVERYONE) for _ in range(5)] == [True] * 4 + [False]


# ---- turns ----

Work = Callable[[str], Awaitable[None]]


async def order_of(work: Work, users: str) -> None:
    """Each asks as its own task does, in this order, before any has had a turn."""

    async def ask(user: str) -> None:
        asking_user.set(user)
        await work(user)

    async with asyncio.TaskGroup() as group:
        for user in users:
            group.create_task(ask(user))


class Blocked:
    """Work on a thread that goes on when told to; the users whose it was, in order."""

    def __init__(self, num_slots: int) -> None:
        self.users: list[str] = []
        self._num_slots = num_slots
        self._go = threading.Event()
        self.seen = 0

    def __call__(self, user: str) -> None:
        self.users.append(user)
        assert self._go.wait(PATIENCE_S)

    async def release(self) -> None:
        """When the slots are taken and the rest waits."""
        while len(self.users) < self._num_slots:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        self.seen = len(self.users)
        self._go.set()


async def fair_order(work: Work, blocked: Blocked) -> None:
    """Alice asks ten times, then bob once: he is next when a slot is free."""
    async with asyncio.TaskGroup() as group:
        group.create_task(blocked.release())
        group.create_task(order_of(work, "a" * 10 + "b"))
    assert sorted(blocked.users) == ["a"] * 10 + ["b"]
    assert blocked.seen == blocked._num_slots, "more at once than there are slots"
    # All slots are alice's. She is first in the ring and bob second: one turn of hers for each slot, at most, then his.
    assert blocked.users.index("b") <= 2 * blocked._num_slots


def test_turns_go_round() -> None:
    served: list[str] = []

    async def run() -> None:
        turns = Turns(1, clock=lambda: 0.0)  # turns count alike

        async def work(user: str) -> None:
            async with turns.turn():
                await asyncio.sleep(0)
                served.append(user)

        await order_of(work, "aaaabbc")

    asyncio.run(run())
    assert served == ["a", "b", "c", "a", "b", "a", "a"]


def test_who_takes_long_waits_for_who_does_not() -> None:
    """Ten users whose turns take two seconds each delay one whose turns take a millisecond by one turn, not by ten."""
    served: list[str] = []
    now = 0.0

    async def run() -> None:
        turns = Turns(1, lambda: now)

        async def work(user: str) -> None:
            nonlocal now
            for _ in range(3):
                async with turns.turn():
                    await asyncio.sleep(0)
                    now += 0.001 if user == "quick" else 2.0
                    served.append(user)

        async with asyncio.TaskGroup() as group:
            for user in [*"abcdefghij", "quick"]:
                asking_user.set(user)
                group.create_task(work(user))

    asyncio.run(run())
    first, second, third = (number for number, user in enumerate(served) if user == "quick")
    assert first <= 10, "one turn of each that came before"
    assert third - second == second - first == 2, "one turn between two of its own"


def test_who_leaves_takes_no_turn_along() -> None:
    async def run() -> None:
        turns = Turns(1)
        async with turns.turn():
            waiting = [asyncio.create_task(_pass(turns)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[1].cancel()
        waiting[2].cancel()  # at the moment at which it is given the slot
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.wait_for(_pass(turns), PATIENCE_S)

    asyncio.run(run())


async def _pass(turns: Turns) -> None:
    async with turns.turn():
        pass


@pytest.fixture
def service() -> Service:
    return Service(AsyncLLM(LLM(stories_gguf())), ServerSettings(max_queue=8), "fingerprint")


def test_template(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = Blocked(1)
    template = service.llm.chat_template
    monkeypatch.setattr(type(template), "render", lambda _, messages, now: blocked(messages[0]["content"]))

    async def render(user: str) -> None:
        await service.prompts.render([{"role": "user", "content": user}])

    asyncio.run(fair_order(render, blocked))


def test_tokenizer(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = Blocked(SHORT_THREADS)
    tokenizer = service.llm.tokenizer
    monkeypatch.setattr(type(tokenizer), "encode", lambda _, text, **__: blocked(text))

    async def encode(user: str) -> None:
        await service.prompts.encode(user)

    asyncio.run(fair_order(encode, blocked))


def test_long_texts_delay_only_long_texts() -> None:
    """Two users send long texts, and two short ones are tokenised before the first of these is."""
    go_on = threading.Event()
    order: list[str] = []

    async def run() -> None:
        encoding = Encoding()

        async def encode(name: str, num_characters: int) -> None:
            await encoding.run(num_characters, lambda: go_on.wait(PATIENCE_S) if num_characters > 9 else None)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name in ("long", "another long"):
                group.create_task(encode(name, LONG_CHARACTERS + 1))
            await asyncio.sleep(0)
            for name in ("short", "another short"):
                await encode(name, 9)
            go_on.set()

    asyncio.run(run())
    assert order == ["short", "another short", "long", "another long"]


def test_grammar(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is tried at a time, and one that takes two seconds is refused then: ten of them would be twenty."""
    blocked = Blocked(1)
    grammars = service.llm.grammars
    monkeypatch.setattr(type(grammars), "compile", lambda _, grammar: blocked(grammar))

    async def compile_grammar(user: str) -> None:
        await constrain(grammars, service.grammar_turns, AskedAnswer(GrammarFormat(type="grammar", grammar=user)))

    asyncio.run(fair_order(compile_grammar, blocked))


def test_admission_names_the_user(service: Service) -> None:
    """Whoever waits for a turn after it does so in the user's name."""

    def admit() -> str:
        with service.admit(Caller(user="alice")):
            return asking_user.get()

    assert copy_context().run(admit) == "alice"


def test_queue(service: Service) -> None:
    def admit(user: str) -> None:
        copy_context().run(service.admit, Caller(user=user))

    for _ in range(4):
        admit("alice")
    with pytest.raises(ApiError, match="4 of them yours"):
        admit("alice")
    admit("bob")
    assert service.num_requests == 5


def test_lines_of_batches() -> None:
    """A user's batches run one at a time, and batches wait in line for each slot: many lines do not pass a few."""
    served: list[str] = []

    async def run() -> None:
        slots = Slots(1)

        async def batch(user: str, num_lines: int) -> None:
            for _ in range(num_lines):
                cost = await slots.take(1)
                served.append(user)
                asyncio.get_running_loop().call_soon(slots.give_back, cost)

        async with asyncio.TaskGroup() as group:
            group.create_task(batch("a", 20))
            group.create_task(batch("b", 2))

    asyncio.run(run())
    assert "b" in served[:3]
    assert served.index("b", served.index("b") + 1) < 6


def test_files_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    asyncio.run(two_of_one_user(files.Files(StateFolder(tmp_path)), 2))


def test_disk(tmp_path: Path) -> None:
    asyncio.run(two_of_one_user(files.Files(StateFolder(tmp_path, max_bytes=400)), 100))


async def two_of_one_user(store: files.Files, num_bytes: int) -> None:
    """A third is refused; another user's is not."""

    async def add(user: str) -> None:
        await store.add(user, UploadFile(io.BytesIO(bytes(num_bytes)), size=num_bytes, filename="a.jsonl"), "batch")

    await add("alice")
    await add("alice")
    with pytest.raises(ApiError):
        await add("alice")
    await add("bob")


# ---- bodies ----


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body; answers how long it was."""
    with suppress(ClientDisconnect):
        body = await Request(scope, receive).body()
        await Response(str(len(body)))(scope, receive, send)


class Gated:
    """A gate with small limits before a small application: those of the whole server are too large to fill."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        keys = folder / "keys.toml"
        self.alice, self.bob = quick_key(keys, "alice"), quick_key(keys, "bob")
        settings = ServerSettings(max_body_bytes=1 << 20, max_file_bytes=1 << 20, **limits)
        self.gate = Gate(self._app, settings, KeyStore(keys), lambda scope, error: None)
        config = uvicorn.Config(self.gate, interface="asgi3", port=0, log_config=None, ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_for(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await echo(scope, receive, send)
        except ApiError as error:
            await send_error(scope, send, error)

    def begin(self, key: str, path: str, body: bytes, length: int) -> socket.socket:
        """A request that says it has `length` bytes, of which these come now."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}", f"Content-Length: {length}"]
        one.sendall("\r\n".join([*head, "", ""]).encode() + body)
        return one

    def status(self, key: str, path: str, num_bytes: int) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.post(url, content=bytes(num_bytes), headers=headers, timeout=PATIENCE_S).status_code

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Callable[..., Gated]]:
    made: list[Gated] = []

    def make(**limits: Any) -> Gated:
        made.append(Gated(tmp_path, **limits))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.parametrize(("path", "name"), [("/any", "_bodies"), ("/v1/files", "_uploads")], ids=["bodies", "uploads"])
def test_bodies_held(gated: Callable[..., Gated], path: str, name: str) -> None:
    """Alice sends most of four bodies and waits. Bob's come in; so do alice's own when those have ended."""
    server = gated(max_held_bytes=400_000, max_uploads=1)
    budget: SharedBudget = getattr(server.gate, name)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(server.begin(server.alice, path, bytes(budget.total // 5), budget.total // 4))
        wait_for(lambda: budget.held_by("alice") >= 2 * (budget.total // 5))
        assert server.status(server.alice, path, budget.total // 5) == 429
        assert server.status(server.bob, path, budget.total // 5) == 200
        assert budget.held_by("alice") <= budget.total // 2
    wait_for(lambda: budget.num_held == 0)
    assert server.status(server.alice, path, budget.total // 5) == 200


def test_withheld_uploads_keep_no_request_out(gated: Callable[..., Gated]) -> None:
    """Uploads go to the disk and have a budget of their own."""
    server = gated(max_held_bytes=400_000, max_uploads=1)
    with ExitStack() as stack:
        for key in (server.alice, server.alice, server.bob):
            stack.enter_context(server.begin(key, "/v1/files", bytes(250_000), 500_000))
        wait_for(lambda: server.gate._uploads.num_held >= 500_000)
        assert server.status(server.alice, "/any", 100_000) == 200


def test_requests_at_the_gate(gated: Callable[..., Gated]) -> None:
    """Requests whose body does not come hold a place, from whatever address; open routes need none."""
    server = gated(max_requests=6)
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(server.begin(server.alice, "/any", b"", 100))
        wait_for(lambda: server.gate._requests.held_by("alice") == 3)
        assert server.status(server.alice, "/any", 10) == 429
        assert server.status(server.bob, "/any", 10) == 200
        assert server.status("none", "/health", 0) == 200
        assert server.gate._requests.held_by("alice") == 3


def test_a_body_that_does_not_come(gated: Callable[..., Gated]) -> None:
    """Silent from the start, or silent after a burst: 408."""
    server = gated(body_grace_s=0.2, read_s=0.3, least_body_rate=1000)
    silent = server.begin(server.alice, "/any", b"a", 10_000)
    stalled = server.begin(server.alice, "/v1/files", bytes(90_000), 100_000)
    with silent, stalled:
        assert b" 408 " in silent.recv(4096)
        assert b" 408 " in stalled.recv(4096)


@pytest.mark.parametrize(
    ("pieces", "seconds"),
    [([100] * 300, None), ([1] * 300, 20), ([20_000, *[1] * 400], 32), ([0] * 300, 20)],
    ids=["steady", "dribbling", "after a burst", "silent"],
)
def test_how_slow_a_body_may_be(pieces: list[int], seconds: int | None) -> None:
    """A piece comes every tenth of a second. Slow but steady is welcome, however long; else it ends soon after the
    grace of ten seconds, and after a burst when what came is as old as it is long."""
    settings = ServerSettings(least_body_rate=1000)
    now, given = 0.0, iter(pieces)

    async def receive() -> dict[str, Any]:
        nonlocal now
        now += 0.1
        return {"type": "http.request", "body": bytes(next(given)), "more_body": True}

    body = BoundedBody(receive, "alice", SharedBudget(1 << 30), 1 << 20, settings, lambda: now)
    if seconds is None:
        assert len(read_pieces(body, len(pieces))) == len(pieces)
    else:
        with pytest.raises(ApiError) as refused:
            read_pieces(body, len(pieces))
        assert refused.value.status == 408
        assert settings.body_grace_s <= now < seconds


def read_pieces(body: BoundedBody, count: int) -> list[Any]:
    async def read() -> list[Any]:
        return [await body() for _ in range(count)]

    return asyncio.run(read())


# ---- all together ----


def test_withheld_uploads_refuse_nobody_else(tmp_path: Path) -> None:
    """On a whole server: four uploads that never end, then requests and uploads of other users."""
    keys = tmp_path / "keys.toml"
    alice, bob = quick_key(keys, "alice"), quick_key(keys, "bob")
    server = Server(stories_gguf(), "--keys", str(keys), "--max-file-bytes", "65536")
    port = int(server.root.rsplit(":", 1)[1])
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + b"a" * 60_000
    head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice}\r\nContent-Length: 65000\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    try:
        with ExitStack() as stack:
            for _ in range(6):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
                one.sendall(head.encode() + part)
            assert b" 429 " in one.recv(4096)
            for key, status in ((alice, 429), (bob, 200)):
                headers = {"Authorization": f"Bearer {key}"}
                file, purpose = {"file": ("a.jsonl", b"{}" * 30_000)}, {"purpose": "batch"}
                sent = httpx.post(f"{server.url}/files", headers=headers, files=file, data=purpose)
                assert sent.status_code == status, sent.text
                ask = {"model": "small", "prompt": "Once", "max_tokens": 2}
                assert httpx.post(f"{server.url}/completions", headers=headers, json=ask).status_code == 200
    finally:
        log = server.stop()
    assert "Traceback" not in log
