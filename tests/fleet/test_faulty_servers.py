"""Servers of a fleet that send nonsense: clients get the answer from another or an error, and nothing else."""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from surefoot.fleet.failover import FleetAnswer, GaveUp, ReplyHead
from surefoot.fleet.frames import MOST_PATIENCE_S, MOST_STATE_BYTES, FrameKind, encode_frame, json_frame
from surefoot.fleet.gateway import Gateway
from surefoot.fleet.lease_exchange import LeaseExchange
from surefoot.fleet.members import NUM_STRIKES, Members
from surefoot.fleet.replica_transport import MOST_HEAD_BYTES, ReplicaTransport
from surefoot.fleet.request_names import PromptText
from tests.fleet.faulty_replica import BODY, HEAD, LEASES, STATE, WHOLE, FaultyReplica, http_reply
from tests.fleet.running import forwarded
from tests.waiting import PATIENCE_S

T = TypeVar("T")
REQUEST = forwarded("/v1/chat/completions", {"messages": []})
PROMPT = PromptText((), 1)
ANSWER = BODY * 2


def with_fleet(replicas: list[FaultyReplica], work: Callable[[Members], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AsyncExitStack() as stack:
            for replica in replicas:
                await stack.enter_async_context(replica)
            timeout = httpx2.Timeout(None, connect=2.0)
            client = httpx2.AsyncClient(transport=ReplicaTransport(), timeout=timeout, trust_env=False)
            await stack.enter_async_context(client)
            members = Members([replica.url for replica in replicas], "key", client, "same")
            await members.meet()
            return await asyncio.wait_for(work(members), PATIENCE_S)

    return asyncio.run(run())


async def body_of(answer: FleetAnswer) -> bytes:
    parts = [part async for part in answer.parts()]
    assert isinstance(parts[0], ReplyHead)
    return b"".join(part for part in parts[1:] if isinstance(part, bytes))


def ask_faulty_first(frames: list[bytes], raw: bytes | None = None) -> tuple[bytes, int]:
    """The body that the client gets, and how often the faulty server was struck."""
    faulty, healthy = FaultyReplica(frames), FaultyReplica(WHOLE, {**STATE, "token_ms": 100.0})  # it is asked second
    faulty.raw = raw

    async def ask(members: Members) -> tuple[bytes, int]:
        body = await body_of(FleetAnswer(members, REQUEST, PromptText((), 100)))
        assert faulty.num_asked == healthy.num_asked == 1
        return body, len(members.all[0].strikes)

    return with_fleet([faulty, healthy], ask)


BAD_FRAMES = {
    "head: not JSON": [encode_frame(FrameKind.HEAD, b"{")],
    "head: no pair": [json_frame(FrameKind.HEAD, 200)],
    "head: null": [json_frame(FrameKind.HEAD, [None, None])],
    "head: status": [json_frame(FrameKind.HEAD, [99999, []])],
    "head: informational": [json_frame(FrameKind.HEAD, [101, []])],
    "head: a status that is true": [json_frame(FrameKind.HEAD, [True, []])],
    "head: a header in the header": [json_frame(FrameKind.HEAD, [200, [["a", "b\r\nc: d"]]])],
    "head: no Latin": [json_frame(FrameKind.HEAD, [200, [["a", "\u0411"]]])],
    "head: name": [json_frame(FrameKind.HEAD, [200, [["a b", "c"]]])],
    "head: many": [json_frame(FrameKind.HEAD, [200, [["a", "b"]] * 1000])],
    "head: length": [json_frame(FrameKind.HEAD, [200, [["content-length", "x"]]])],
    "head: lengths": [json_frame(FrameKind.HEAD, [200, [["content-length", "3"]] * 2])],
    "head: less than nothing": [json_frame(FrameKind.HEAD, [200, [["content-length", "-3"]]])],
    "head: no body, but a length": [json_frame(FrameKind.HEAD, [204, [["content-length", "3"]]])],
    "head: twice": [HEAD, HEAD],
    "head: deep": [encode_frame(FrameKind.HEAD, b"[" * 100_000)],
    "body: no head": [encode_frame(FrameKind.BODY, b"x")],
    "body: empty": [HEAD, encode_frame(FrameKind.BODY, b"")],
    "beat: no head": [encode_frame(FrameKind.BEAT, b"x")],
    "beat: no stream": [
        json_frame(FrameKind.HEAD, [200, [["content-length", "4"]]]),
        encode_frame(FrameKind.BEAT, b"x"),
    ],
    "end: no head": [json_frame(FrameKind.END, [1, 2])],
    "end: twice": [*WHOLE[:1], *WHOLE[-1:] * 2],
    "end: not what was used": [HEAD, json_frame(FrameKind.END, {"a": 1})],
    "end: less than nothing": [HEAD, json_frame(FrameKind.END, [-1, 2])],
    "end: infinite": [HEAD, encode_frame(FrameKind.END, b"[1, Infinity]")],
    "tokens: not a list": [json_frame(FrameKind.TOKENS, 5)],
    "tokens: no pairs": [json_frame(FrameKind.TOKENS, [[1]])],
    "tokens: a fraction": [json_frame(FrameKind.TOKENS, [[0, 1.5]])],
    "tokens: below zero": [json_frame(FrameKind.TOKENS, [[0, -1]])],
    "tokens: text": [json_frame(FrameKind.TOKENS, [["0", "1"]])],
    "tokens: huge": [json_frame(FrameKind.TOKENS, [[0, 10**30]])],
    "tokens: logprobs": [json_frame(FrameKind.TOKENS, [[0, 1, "a", []]])],
    "alive: text": [json_frame(FrameKind.ALIVE, "for ever")],
    "alive: for ever": [json_frame(FrameKind.ALIVE, 1e300)],
    "alive: not a number": [json_frame(FrameKind.ALIVE, math.nan)],
    "alive: infinite": [json_frame(FrameKind.ALIVE, math.inf)],
    "alive: below zero": [json_frame(FrameKind.ALIVE, -1)],
    "returned: text": [encode_frame(FrameKind.RETURNED, b"why")],
    "returned: no pair": [json_frame(FrameKind.RETURNED, "why")],
    "unknown": [b"z\0\0\0\0"],
    "too long": [b"h\xff\xff\xff\xff"],
}


@pytest.mark.parametrize("frames", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_malformed_frame_is_a_strike_and_the_answer_comes_from_another(frames: list[bytes]) -> None:
    assert ask_faulty_first(frames) == (ANSWER, 1)


def test_a_sign_of_life_is_no_part() -> None:
    """The first server shows life twice and dies after a part: the second one leaves out one part, not three."""
    beat = encode_frame(FrameKind.BEAT, b": alive\n\n")
    dying = FaultyReplica([WHOLE[0], beat, *WHOLE[1:3], beat])
    healthy = FaultyReplica(WHOLE, {**STATE, "token_ms": 100.0})

    async def ask(members: Members) -> bytes:
        return await body_of(FleetAnswer(members, REQUEST, PromptText((), 100)))

    assert with_fleet([dying, healthy], ask) == b": alive\n\n" + BODY + b": alive\n\n" + BODY
    assert dying.num_asked == healthy.num_asked == 1


BAD_HTTP = {
    "not HTTP": b"\x16\x03\x01 nonsense\r\n\r\n",
    "one long header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * (2 * MOST_HEAD_BYTES) + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 1000 + b"\r\n",
    "a long chunk head": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"a" * (2 * MOST_HEAD_BYTES),
}


@pytest.mark.parametrize("raw", BAD_HTTP.values(), ids=BAD_HTTP.keys())
def test_so_is_what_is_no_http(raw: bytes) -> None:
    assert ask_faulty_first([], raw) == (ANSWER, 1)


def test_a_change_of_protocol_is_a_status_that_no_server_sends() -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nnonsense"
    assert ask_faulty_first([], raw) == (ANSWER, 0)


@pytest.mark.parametrize("body", [b"long" * 9, b"x"], ids=["longer", "shorter"])
def test_a_reply_of_another_length_than_it_said(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the client has a part, another server answers. What the client has, nobody can take back."""
    monkeypatch.setattr("surefoot.fleet.failover.BEGUN_WAIT_S", 0.1)
    head = json_frame(FrameKind.HEAD, [200, [["content-length", "4"]]])
    frames = [head, encode_frame(FrameKind.BODY, body), json_frame(FrameKind.END, [1, 2])]
    if len(body) > 4:
        assert ask_faulty_first(frames) == (ANSWER, 1)
        return

    async def ask(members: Members) -> int:
        with pytest.raises(GaveUp):
            await body_of(FleetAnswer(members, REQUEST, PROMPT, stall_s=2.0))
        return len(members.all[0].strikes)

    assert with_fleet([FaultyReplica(frames)], ask) >= 1


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_mutated_frames_never_raise_anything_else(data: st.DataObject) -> None:
    """A byte changed, left out or added, frames cut, doubled or in another order."""
    frames = data.draw(st.permutations(WHOLE) | st.just(WHOLE), "order")
    text = bytearray(b"".join(frames[: data.draw(st.integers(0, len(frames)), "frames")]))
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), "bytes"):
        if place < len(text):
            text[place] = value
    faulty, healthy = FaultyReplica([]), FaultyReplica(WHOLE, {**STATE, "token_ms": 100.0})
    faulty.raw = http_reply(bytes(text))

    async def ask(members: Members) -> None:
        answer = FleetAnswer(members, REQUEST, PromptText((), 100), stall_s=1.0)
        try:
            parts = [part async for part in answer.parts()]
        except GaveUp:
            return
        assert isinstance(parts[0], ReplyHead)
        assert all(isinstance(part, bytes) for part in parts[1:])
        if members.all[0].strikes:
            assert answer.num_failovers > 0

    with_fleet([faulty, healthy], ask)


def test_a_server_that_only_says_that_it_lives_holds_nobody_for_ever() -> None:
    faulty = FaultyReplica([HEAD])
    faulty.repeats = json_frame(FrameKind.ALIVE, MOST_PATIENCE_S), 0.01

    async def ask(members: Members) -> float:
        began = time.monotonic()
        with pytest.raises(GaveUp, match="no progress"):
            await body_of(FleetAnswer(members, REQUEST, PROMPT, stall_s=0.5))
        return time.monotonic() - began

    assert with_fleet([faulty], ask) >= 0.5


@pytest.mark.parametrize("frame", [json_frame(FrameKind.TOKENS, []), json_frame(FrameKind.ALIVE, 5)])
def test_nothing_said_often_is_no_progress(frame: bytes) -> None:
    faulty = FaultyReplica([])
    faulty.repeats = frame, 0.01

    async def ask(members: Members) -> None:
        with pytest.raises(GaveUp):
            await body_of(FleetAnswer(members, REQUEST, PROMPT, stall_s=0.5))

    with_fleet([faulty], ask)


# ---- strikes ----


def test_a_server_that_is_struck_often_is_refused_until_it_is_another_process_and_time_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faulty = FaultyReplica(BAD_FRAMES["head: null"])

    async def ask(members: Members) -> None:
        (member,) = members.all
        for number in range(NUM_STRIKES):
            assert not member.refusal
            await members.meet()
            with pytest.raises(GaveUp):
                await asyncio.wait_for(body_of(FleetAnswer(members, REQUEST, PROMPT, stall_s=0.2)), PATIENCE_S)
            if len(member.strikes) >= NUM_STRIKES:
                break
            assert number < NUM_STRIKES
        assert "malformed" in member.refusal
        await members.meet()
        assert not member.is_ready
        faulty.state = json.dumps({**STATE, "boot": "c"}).encode()  # it says that it is another process
        await members.meet()
        assert not member.is_ready
        monkeypatch.setattr("surefoot.fleet.members.STRIKES_S", 0.0)
        await members.meet()
        assert member.is_ready, "the restarted process is let in without another restart"

    monkeypatch.setattr("surefoot.fleet.failover.WAIT_S", 0.1)
    with_fleet([faulty], ask)


BAD_STATES: dict[str, bytes] = {
    name: json.dumps({**STATE, **change}).encode()
    for name, change in {
        "not a number": {"token_ms": math.nan},
        "infinite": {"token_ms": math.inf},
        "below zero": {"token_ms": -1.0},
        "huge": {"token_ms": 1e300},
        "backlog below zero": {"backlog_tokens": -5},
        "huge backlog": {"backlog_tokens": 10**300},
        "a backlog that is text": {"backlog_tokens": "5"},
        "patience for ever": {"patience_s": 1e300},
        "patience of nothing": {"patience_s": 0},
        "a name of the process that is part of an address": {"boot": "x&since=5"},
        "a long name": {"boot": "x" * 10_000},
        "started": {"started": math.nan},
        "names that are no numbers": {"names": {"number": 1, "added": ["a"]}},
        "names below zero": {"names": {"number": 1, "added": [-1]}},
        "names too large": {"names": {"number": 1, "removed": [1 << 64]}},
        "too many names": {"names": {"number": 1, "added": [1] * 200_000}},
        "a number below zero": {"names": {"number": -1}},
        "fetching": {"fetch_ms": math.inf},
    }.items()
} | {"not JSON": b"{", "a list": b"[]", "deep": b"[" * 100_000, "long": b" " * (MOST_STATE_BYTES + 1)}


@pytest.mark.parametrize("state", BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_malformed_report_is_a_strike(state: bytes) -> None:
    async def look(members: Members) -> tuple[int, bool]:
        return len(members.all[0].strikes), members.all[0].is_ready

    assert with_fleet([FaultyReplica(WHOLE, state)], look) == (1, False)


@pytest.mark.parametrize(
    "change",
    [
        {"grants": {"a": {"amount": math.inf, "target": 1}}},
        {"grants": {"a": {"amount": -5, "target": 1}}},
        {"grants": {"a": {"amount": 1, "target": math.nan}}},
        {"grants": 5},
        {"per_minute": {"a": 0}},
        {"per_minute": {"a": -1}},
        {"per_minute": {"a": math.nan}},
        {"limits": "x" * 1000},
    ],
    ids=str,
)
def test_a_malformed_reply_about_rates_is_a_strike(change: dict[str, Any]) -> None:
    async def exchange(members: Members) -> tuple[int, int]:
        exchanging = LeaseExchange(members)
        await exchanging.exchange()
        return exchanging.num_failures, len(members.all[0].strikes)

    leases = json.dumps({**LEASES, **change}).encode()
    assert with_fleet([FaultyReplica(WHOLE, leases=leases)], exchange) == (1, 1)


# ---- what a client sees ----


@pytest.mark.parametrize("name", ["head: null", "body: no head", "end: no head", "alive: for ever", "unknown"])
def test_a_client_gets_an_error_with_a_body_if_no_server_is_healthy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.fleet.failover.WAIT_S", 0.2)
    monkeypatch.setattr("surefoot.fleet.lease_exchange.FIRST_S", 0.0)

    async def ask(members: Members) -> httpx2.Response:
        app = httpx2.ASGITransport(Gateway(members), raise_app_exceptions=True)
        async with httpx2.AsyncClient(transport=app, base_url="http://127.0.0.1") as client:
            return await client.post("/v1/chat/completions", json={"messages": []}, timeout=PATIENCE_S)

    reply = with_fleet([FaultyReplica(BAD_FRAMES[name])], ask)
    assert reply.status_code == 503
    assert "no replica answers" in reply.json()["error"]["message"]
    assert int(reply.headers["retry-after"]) > 0


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_gateway_that_must_end_breaks_replies_off_without_a_failure(
    has_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client must not take a part for the whole: a reply that has begun gets no end, another one a status."""
    monkeypatch.setattr("surefoot.fleet.lease_exchange.FIRST_S", 0.0)
    silent = FaultyReplica([HEAD] if has_begun else [])
    silent.repeats = json_frame(FrameKind.ALIVE, 5), 0.01
    messages = list[Message]()

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        if not received:
            received.append(True)
            return {"type": "http.request", "body": b"{}"}
        return await asyncio.Future[Message]()

    received = list[bool]()

    async def ask(members: Members) -> None:
        gateway = Gateway(members)
        scope = {"type": "http", "method": "POST", "path": "/v1/x", "query_string": b"", "headers": []}
        asking = asyncio.ensure_future(gateway(scope, receive, send))
        while not (gateway.num_requests and silent.num_asked and bool(messages) == has_begun):
            await asyncio.sleep(0.01)
        gateway.abort_all()
        await asking

    with_fleet([silent], ask)
    statuses = [message["status"] for message in messages if message["type"] == "http.response.start"]
    has_end = any(message["type"] == "http.response.body" and not message.get("more_body") for message in messages)
    assert (statuses, has_end) == (([200], False) if has_begun else ([503], True))
