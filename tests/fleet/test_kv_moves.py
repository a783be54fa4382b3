"""Blocks fetched from another server: the bits of computed ones, or a miss."""

import asyncio
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from surefoot.fleet.failover import FleetAnswer
from surefoot.fleet.frames import ANSWER_PATH, BLOCKS_PATH, COUNT_BYTES, KEY_HEADER, FrameKind, FrameReader, PrefixHint
from surefoot.fleet.members import Members
from surefoot.fleet.request_names import PromptText
from surefoot.fleet.router import ReplicaReport
from surefoot.ops.backend import supported_variants
from tests.fleet.running import KEY, forwarded, start_replica
from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.long

EAGER = (sys.executable, "-m", "tests.fleet.eager_server")
RNG = random.Random(21)
TEXT_PATH = "/v1/completions"
BLOCK = 16
FETCHED, BROKEN, DAMAGED = (
    "surefoot:fleet_fetched_tokens_total",
    "surefoot:fleet_fetch_failures_total",
    "surefoot:fleet_fetch_checksum_failures_total",
)
SENT, WRITES = "surefoot:fleet_sent_blocks_total", "surefoot:cache_disk_writes_total"


def prompt(num_tokens: int = 200) -> list[int]:
    return [RNG.randrange(3, 500) for _ in range(num_tokens)]


def question(tokens: list[int]) -> dict[str, Any]:
    return {
        "model": "small", "prompt": tokens, "max_tokens": 12, "logprobs": 3, "seed": 4, "temperature": 1.0,
        "ignore_eos": True,
    }  # fmt: skip


def started(folder: Path, variant: str, *words: str) -> Server:
    folder.mkdir()
    return start_replica(folder, "--variant", variant, "--cache-dir", str(folder / "blocks"), *words, command=EAGER)


def ask(server: Server, tokens: list[int], holder: str | None = None, client_key: str = "") -> dict[str, Any]:
    """The reply to a forwarded request. holder: the server that is said to hold all of the prompt."""
    request = forwarded(TEXT_PATH, question(tokens))
    if client_key:
        request = replace(request, headers=(*request.headers, ("authorization", f"Bearer {client_key}")))
    hint = None if holder is None else PrefixHint(holder, len(tokens))
    data = replace(request, hint=hint).encode()
    reply = httpx.post(server.root + ANSWER_PATH, content=data, headers={KEY_HEADER: KEY}, timeout=120)
    frames = [*FrameReader().feed(reply.content)]
    assert frames[-1][0] is FrameKind.END, reply.content
    answer: dict[str, Any] = json.loads(b"".join(payload for kind, payload in frames if kind is FrameKind.BODY))
    return answer


def cached(reply: dict[str, Any]) -> int:
    count: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def ask_and_keep(server: Server, tokens: list[int], client_key: str = "") -> dict[str, Any]:
    """The reply, once the prompt's blocks are on the server's disk."""
    before = server.metric(WRITES, client_key or None)
    reply = ask(server, tokens, client_key=client_key)
    assert cached(reply) == 0
    wait_for(lambda: server.metric(WRITES, client_key or None) >= before + len(tokens) // BLOCK)
    return reply


class Meddler:
    """Stands between two servers, and changes what one answers."""

    def __init__(self, holder: Server, change: Callable[[bytes], bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {KEY_HEADER: self.headers[KEY_HEADER]}
                data = change(httpx.post(holder.root + self.path, content=body, headers=headers, timeout=60).content)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def variants() -> tuple[str, str]:
    if "avx2" not in supported_variants():
        pytest.skip("the machine has no AVX2")
    return "avx2", "portable"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, variants: tuple[str, str]) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("moves")
    made = [started(folder / variant, variant) for variant in variants]
    yield made
    for server in made:
        server.stop()


@pytest.mark.parametrize("direction", [1, -1])
def test_fetched_blocks_have_the_bits_of_computed_ones(pair: list[Server], direction: int) -> None:
    """Between instruction sets, both ways. The answer of the holder, which computed everything, is the one of a cold
    server; further tokens after the shared prefix are computed from fetched keys and values."""
    holder, other = pair[::direction]
    tokens = prompt()
    wanted = ask_and_keep(holder, tokens)
    before = other.metric(FETCHED)
    reply = ask(other, tokens, holder.root)
    assert reply["choices"] == wanted["choices"]
    assert cached(reply) == (len(tokens) - 1) // BLOCK * BLOCK == other.metric(FETCHED) - before
    assert holder.metric(SENT) > 0
    longer = [*tokens[:170], *prompt(60)]
    assert ask(other, longer)["choices"] == ask(holder, longer)["choices"]
    assert other.metric(BROKEN) == other.metric(DAMAGED) == 0


def test_a_fetched_prefix_goes_on_to_the_disk_and_to_other_servers(pair: list[Server]) -> None:
    tokens = prompt()
    wanted = ask_and_keep(pair[0], tokens)
    before = pair[1].metric(WRITES)
    ask(pair[1], tokens, pair[0].root)
    wait_for(lambda: pair[1].metric(WRITES) >= before + len(tokens) // BLOCK)
    sent = pair[0].metric(SENT)
    assert ask(pair[1], tokens, pair[0].root)["choices"] == wanted["choices"]
    assert pair[0].metric(SENT) == sent  # what a server has is not fetched again


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << RNG.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("kind", ["a header", "a payload", "an end", "nothing", "a status", "another's record"])
def test_what_does_not_check_is_a_miss(pair: list[Server], kind: str) -> None:
    holder, other = pair
    tokens, noise = prompt(), prompt()
    wanted = ask_and_keep(holder, tokens)
    ask_and_keep(holder, noise)
    answers: list[bytes] = []

    def change(data: bytes) -> bytes:
        answers.append(data)
        record = (len(data) - COUNT_BYTES) // int.from_bytes(data[:COUNT_BYTES], "big")
        if kind == "a header":
            return flipped(data, COUNT_BYTES + 2 * record + RNG.randrange(100))
        if kind == "a payload":
            return flipped(data, COUNT_BYTES + 3 * record + RNG.randrange(400, record))
        if kind == "another's record":
            return data[: COUNT_BYTES + record] + data[COUNT_BYTES + 2 * record :] + data[:record]
        return data[: len(data) // 2] if kind == "an end" else b""

    meddler = Meddler(holder, change)
    url = "http://127.0.0.1:9" if kind == "a status" else meddler.url
    broken, damaged = other.metric(BROKEN), other.metric(DAMAGED)
    try:
        reply = ask(other, tokens, url)
    finally:
        meddler.stop()
    assert reply["choices"] == wanted["choices"]
    assert cached(reply) < (len(tokens) - 1) // BLOCK * BLOCK
    is_damage = kind in ("a header", "a payload", "another's record")
    assert other.metric(DAMAGED) - damaged == is_damage
    assert other.metric(BROKEN) - broken == (not is_damage)


def test_another_users_blocks_are_never_served(tmp_path: Path, variants: tuple[str, str]) -> None:
    keys = tmp_path / "keys.toml"
    ann, bob = quick_key(keys, "ann", admin=True), quick_key(keys, "bob")
    pair = [started(tmp_path / variant, variant, "--keys", str(keys)) for variant in variants]
    holder, other = pair
    tokens = prompt()
    try:
        wanted = ask_and_keep(holder, tokens, ann)
        reply = ask(other, tokens, holder.root, bob)
        assert (cached(reply), holder.metric(SENT, ann)) == (0, 0)
        assert reply["choices"] == wanted["choices"]
        assert cached(ask(other, tokens, holder.root, ann)) == (len(tokens) - 1) // BLOCK * BLOCK
        for words in ({}, {KEY_HEADER: "another key of 32 characters....."}, {"authorization": f"Bearer {ann}"}):
            assert httpx.post(holder.root + BLOCKS_PATH, content=bytes(64), headers=words).status_code == 404
        for body in (b"", bytes(33), bytes(1 << 20)):
            reply = httpx.post(holder.root + BLOCKS_PATH, content=body, headers={KEY_HEADER: KEY})
            assert reply.status_code in (400, 413)
    finally:
        for server in pair:
            server.stop()


async def answered(members: Members, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The reply, and the number of the server that gave it."""
    request = forwarded(TEXT_PATH, body)
    answer = FleetAnswer(members, request, PromptText.of(request.body, ""))
    data = b"".join([part async for part in answer.parts() if isinstance(part, bytes)])
    assert answer.member is not None
    return json.loads(data), answer.member.number


async def ask_idle_then_busy(pair: list[Server]) -> None:
    body = {**question([]), "prompt": "".join(RNG.choice("abcdefgh ") for _ in range(300))}
    async with httpx2.AsyncClient(timeout=60) as client:
        members = Members([server.root for server in pair], KEY, client)
        await members.meet()
        before = [server.metric(WRITES) for server in pair]
        wanted, first = await answered(members, body)
        num_blocks = wanted["usage"]["prompt_tokens"] // BLOCK
        wait_for(lambda: pair[first].metric(WRITES) >= before[first] + num_blocks)
        members = Members([server.root for server in pair], KEY, client)  # a gateway that was started again
        await members.meet()
        # Such reports as servers of a large model make, whose times a test cannot wait for.
        members.router.report(first, ReplicaReport(10_000, 5.0))
        members.router.report(1 - first, ReplicaReport(0, 5.0, fetch_ms=5.0, fetch_token_ms=0.2))
        fetched = pair[1 - first].metric(FETCHED)
        reply, second = await answered(members, body)
    assert second == 1 - first
    assert reply["choices"] == wanted["choices"]
    assert pair[second].metric(FETCHED) - fetched == cached(reply) > 0


def test_the_gateway_says_where_a_prompt_is(pair: list[Server]) -> None:
    asyncio.run(ask_idle_then_busy(pair))
