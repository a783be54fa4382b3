"""Upstreams: what stays sends no byte, whatever fails; what leaves has an audit line and nothing of ours."""

import asyncio
import json
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from surefoot.front.prices import TEMPLATE_TOKENS, millionths
from surefoot.front.private_marks import NAME
from surefoot.front.routing import AskedFor
from surefoot.front.sensitivity import Privacy
from surefoot.front.upstreams import MOST_CHECKED_BYTES
from surefoot.server.access.shares import Caller
from tests.front.recorder import MODES, ReceivedRequest
from tests.front.world import BUDGET, CALLERS, CHAT, KEY, NOWHERE, PRICE, Walk, World, body_of, world

PUBLIC, INTERNAL, PRIVATE = Privacy
PUBLICLY = [("x-surefoot-sensitivity", "public")]
AS_HEADERS = Headers(dict(PUBLICLY))
ANN, BOB, EVE = CALLERS
FAILING = sorted({*MODES, NOWHERE} - {"good", "cut"})


@pytest.fixture(autouse=True)
def _no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a resolver says it, without asking one."""
    resolve = socket.getaddrinfo

    def lookup(host: Any, *more: Any, **named: Any) -> Any:
        if "invalid" in str(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def run(folder: Path, scene: Callable[[World], Awaitable[None]]) -> None:
    async def play() -> None:
        async with world(folder) as made:
            await scene(made)

    asyncio.run(play())


def user_says(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "model": "to-two", **more}


def audited(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit").read_text().splitlines()]


# ---- the walk ----


async def step(made: World, walk: Walk) -> None:
    """One request, and what it may send where."""
    draw, caller = walk.draw, walk.draw.choice((ANN, ANN, ANN, ANN, BOB, EVE))
    path = draw.choice([CHAT] * 8 + ["/v1/completions", "/v1/messages", "/v1/responses", "/api/chat"])
    name = draw.choice([*made.routes, "two"])
    messages = walk.conversation()
    headers, declared = walk.declaration()
    body = {**body_of(path, messages, draw), "model": f"to-{name}", "stream": draw.random() < 0.3}
    can_leave = path == CHAT
    if draw.random() < 0.05:
        body, can_leave = {**body, "grammar": "root ::= [a-z]"}, False
    if draw.random() < 0.05:
        headers, can_leave = [*headers, ("last-event-id", "sf1.x")], False
    if draw.random() < 0.05:
        headers = [*headers, draw.choice([("x-surefoot-route", "good"), ("x-task", "hard")])]
    if draw.random() < 0.02:
        body["tools"] = [{"type": "function", "function": {"name": "SECRET-1"}}]
    if draw.random() < 0.02 and "messages" in body:
        messages, declared = [walk.message()], PRIVATE
        body["messages"] = [{"role": "user", "content": f"\ud800 {messages[0]}"}]
    if draw.random() < 0.002:
        body, declared = {**body, "user": "x" * MOST_CHECKED_BYTES}, PRIVATE
    detected = PRIVATE if "SECRET-" in json.dumps(body) else PUBLIC
    tokens = [text[text.index("token-") :].partition(",")[0] for text in messages]
    level = walk.reckoning.take(tokens, max(declared, detected))
    allowed = {
        upstream for upstream in made.routes[name].upstreams
        if can_leave and upstream in caller.upstreams and level <= made.upstreams[upstream].allows
    }  # fmt: skip
    before = made.recorder.num_bytes.copy()
    made.now += 600
    reply = await made.ask(path, body, caller, headers)
    for _ in range(20):
        await asyncio.sleep(0)  # what is still on its way counts for this request
    sent = {upstream for upstream, count in made.recorder.num_bytes.items() if count > before[upstream]}
    assert sent <= allowed, (sent, allowed, level, body, headers)
    assert all(cost <= millionths(BUDGET) for cost in made.costs.values())
    assert reply.status, "no answer"
    if reply.status == 200 and name in FAILING:
        assert reply.told["model"] in ("small", "chat")
    walk.num_unpaid += "budget" in reply.told.get("upstreams", {}).values()


async def restart(made: World, is_clean: bool) -> None:
    """Not clean: as after `kill -9`, the next process finds the file as it is."""
    if is_clean:
        await made.stop()
        await made.start()
    else:
        before = made._running
        await made.start()
        await before.aclose()


async def walk_for(made: World, num_requests: int, seed: int) -> None:
    walk = Walk(random.Random(seed))

    def check(received: ReceivedRequest) -> None:
        most = walk.reckoning.most_private(received)
        if most > made.upstreams[received.mode].allows:
            leaked.append(received)

    leaked: list[ReceivedRequest] = []
    made.recorder.on_request = check
    for _ in range(num_requests):
        await step(made, walk)
        assert leaked == []
        if walk.draw.random() < 0.02:
            await restart(made, is_clean=walk.draw.random() < 0.5)
    reached = {received.mode for received in made.recorder.requests}
    assert reached == set(MODES), "the walk has not been everywhere"
    assert len(made.recorder.requests) > num_requests / 40
    assert len(audited(made.folder)) >= len(made.recorder.requests)
    assert walk.num_unpaid, "no budget was ever spent"
    assert len(made.costs) > num_requests / 200
    assert {why for _, _, why in made.counts} >= {"upstream", "sure", "last"}


def test_nothing_private_leaves(tmp_path: Path) -> None:
    run(tmp_path, lambda made: walk_for(made, 1_000, seed=1))


@pytest.mark.nightly
def test_nothing_private_leaves_in_ten_thousand_requests(tmp_path: Path) -> None:
    seed = time.time_ns()
    print("seed", seed)
    run(tmp_path, lambda made: walk_for(made, 10_000, seed))


# ---- single scenes ----


def test_what_leaves(tmp_path: Path) -> None:
    """The body without what concerns this server, with the upstream's key, model and nothing else; a line before it."""

    async def scene(made: World) -> None:
        asked = user_says("Hi", model="to-good", user="ann", metadata={"a": "b"}, temperature=0.5)
        headers = [*PUBLICLY, ("x-forwarded-for", "10.0.0.1"), ("x-surefoot-route", "good")]
        for _ in range(2):  # the second on the same connection, after a cookie
            reply = await made.ask(CHAT, asked, ANN, headers)
        assert reply.status == 200
        assert set(reply.headers) == {"content-type", "x-surefoot-route"}
        assert reply.told == {
            "route": "to-good", "model": "good", "why": "upstream", "scores": {}, "upstreams": {"good": "public"}
        }  # fmt: skip
        first, second = made.recorder.requests
        assert json.loads(second.body) == {"model": "large", "messages": asked["messages"], "temperature": 0.5}
        names = {line.partition(b":")[0].lower() for line in second.head.split(b"\r\n")[1:-2]}
        own = {b"content-type", b"content-length", b"accept-encoding", b"user-agent", b"authorization"}
        assert names == {b"host", *own}
        assert f"Bearer {KEY}".encode() in second.head
        assert first.head == second.head
        line = audited(tmp_path)[0]
        assert line["digest"] == sha256(first.body).hexdigest()
        assert {name: line[name] for name in ("upstream", "rule", "bytes", "user", "key", "end", "route")} == {
            "upstream": "good", "rule": "public", "bytes": len(first.body), "user": "ann", "key": "k1",
            "end": "leaves", "route": CHAT,
        }  # fmt: skip
        assert made.counts["to-good", "good", "upstream"] == 2

    run(tmp_path, scene)


def test_a_stream(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        reply = await made.ask(CHAT, user_says("Hi", stream=True), BOB, PUBLICLY)
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.body.endswith(b"data: [DONE]\n\n")

    run(tmp_path, scene)


@pytest.mark.parametrize("mode", FAILING)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_upstream_is_passed_over(tmp_path: Path, mode: str, stream: bool) -> None:
    async def scene(made: World) -> None:
        asked = user_says("Hi", model=f"to-{mode}", stream=stream)
        reply = await made.ask(CHAT, asked, ANN, [*PUBLICLY, ("x-surefoot-route", mode)])
        assert json.loads(reply.body) == {"model": "chat"}
        assert reply.told["upstreams"] == {mode: "failed"}
        assert made.recorder.num_bytes["good"] == 0, "a redirect was followed"
        assert [line["upstream"] for line in audited(tmp_path) if line["end"] == "leaves"] == [mode]

    run(tmp_path, scene)


def test_an_answer_that_is_cut(tmp_path: Path) -> None:
    """Whole answers are held back until they are whole; a stream that has begun ends with an error."""

    async def scene(made: World) -> None:
        headers = [*PUBLICLY, ("x-surefoot-route", "cut")]
        whole = await made.ask(CHAT, user_says("Hi", model="to-cut"), ANN, headers)
        assert json.loads(whole.body) == {"model": "chat"}
        begun = await made.ask(CHAT, user_says("Hi", model="to-cut", stream=True), ANN, headers)
        assert b"from elsewhere" in begun.body
        assert b"has ended while it answered" in begun.body

    run(tmp_path, scene)


def test_an_upstreams_failure_moves_no_request_to_one_that_it_may_not_leave_for(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        reply = await made.ask(CHAT, user_says("Hi"), ANN, [("x-surefoot-sensitivity", "internal")])
        assert reply.told["model"] == "chat"
        assert reply.told["upstreams"] == {"broken": "failed", "good": "declaration"}
        assert set(made.recorder.num_bytes) == {"broken"}

    run(tmp_path, scene)


def test_an_internal_conversation_still_leaves_for_who_may_have_it(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        headers = [("x-surefoot-sensitivity", "internal"), ("x-surefoot-route", "broken")]
        for _ in range(2):
            await made.ask(CHAT, user_says("Hi"), ANN, headers)
        assert len(made.recorder.requests) == 2

    run(tmp_path, scene)


def test_without_an_audit_line_nothing_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(made: World) -> None:
        monkeypatch.setattr(made.audit, "write", lambda **facts: False)
        reply = await made.ask(CHAT, user_says("Hi"), ANN, PUBLICLY)
        assert reply.told["upstreams"] == {"broken": "audit", "good": "audit"}
        assert made.recorder.requests == []

    run(tmp_path, scene)


def test_a_conversation_that_becomes_private_on_its_way(tmp_path: Path) -> None:
    """It is decided to leave, a model here is asked first, and meanwhile somebody sends the same undeclared."""

    async def scene(made: World) -> None:
        asked = user_says("Hi", model="to-good")
        examined = made.outward.examine(CHAT, AS_HEADERS, asked, 100)
        plan = made.front.catalog.plan(CHAT, AskedFor.of(asked, 100), ANN, AS_HEADERS)
        assert made.outward.decide(examined, plan, ANN)["good"].leaves
        await made.ask("/api/chat", user_says("Hi", model="chat"), EVE)
        verdict = await made.outward.answer("good", examined, plan, ANN, None)  # type: ignore[arg-type]
        assert (verdict.leaves, verdict.rule) == (False, "conversation")
        assert made.recorder.requests == []

    run(tmp_path, scene)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_without_its_marks_everything_stays(tmp_path: Path, damage: str) -> None:
    async def scene(made: World) -> None:
        if damage == "cut":
            (tmp_path / NAME).open("r+b").truncate(100)
        else:
            await made.stop()
            await made.start(has_marks=False)
        reply = await made.ask(CHAT, user_says("Hi"), ANN, PUBLICLY)
        assert reply.told["model"] == "chat"
        assert made.recorder.requests == []

    run(tmp_path, scene)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "to-two"}', b'{"model": "to-two", "messages": []}'])
def test_what_is_no_conversation_stays(tmp_path: Path, body: bytes) -> None:
    async def scene(made: World) -> None:
        await made.ask(CHAT, body, ANN, PUBLICLY)
        assert made.recorder.requests == []

    run(tmp_path, scene)


def test_a_model_before_and_after_an_upstream_is_asked_once_if_the_request_stays(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        route = made.routes["good"].plan(CHAT, AskedFor(), ANN, Headers())
        twice = type(route)("r", ("chat", "good", "chat"), "last", route.sure, route.upstreams)
        assert twice.without(["good"]).models == ("chat",)
        assert twice.without(["good"]).rule_for(0) is None
        assert [twice.rule_for(number) for number in (0, 2)] == [route.sure, None]

    run(tmp_path, scene)


# ---- what it costs ----


def test_what_an_answer_costs(tmp_path: Path) -> None:
    """First the most that it may, as the audit log says before it leaves; then what the upstream's usage says."""

    async def scene(made: World) -> None:
        asked = user_says("Hi", model="to-good", max_tokens=100, n=2)
        headers = [*PUBLICLY, ("x-surefoot-route", "good")]
        await made.ask(CHAT, asked, ANN, headers)
        leaves, settled = audited(tmp_path)
        assert leaves["most"] == (2 * (len(json.dumps(asked)) + TEMPLATE_TOKENS) + 10 * 100 * 2) / 1e6
        told = {"end": "settled", "cost": 44e-6, "prompt_tokens": 7, "answer_tokens": 3}
        assert {name: settled[name] for name in (*told, "key", "upstream")} == {**told, "key": "k1", "upstream": "good"}
        assert made.costs == {(0, "k1"): 44}
        assert made.spending is not None
        assert made.spending.left("k1", 1000) == 1000 - 44

    run(tmp_path, scene)


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_streams_usage_is_asked_for_and_passed_on_only_if_the_client_did(tmp_path: Path, is_asked: bool) -> None:
    async def scene(made: World) -> None:
        more = {"stream_options": {"include_usage": True}} if is_asked else {}
        reply = await made.ask(CHAT, user_says("Hi", stream=True, **more), BOB, PUBLICLY)
        assert json.loads(made.recorder.requests[0].body)["stream_options"] == {"include_usage": True}
        assert (b"prompt_tokens" in reply.body) == is_asked
        assert b"from elsewhere" in reply.body
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert made.costs == {(0, "k2"): 44}

    run(tmp_path, scene)


@pytest.mark.parametrize(("mode", "is_free"), [("busy", True), (NOWHERE, True), ("broken", False), ("cut", False)])
def test_what_fails_costs_the_most_unless_it_was_refused_or_not_reached(
    tmp_path: Path, mode: str, is_free: bool
) -> None:
    async def scene(made: World) -> None:
        await made.ask(CHAT, user_says("Hi", model=f"to-{mode}"), ANN, [*PUBLICLY, ("x-surefoot-route", mode)])
        leaves, settled = audited(tmp_path)
        assert settled["cost"] == (0 if is_free else leaves["most"])
        await restart(made, is_clean=False)
        assert made.spending is not None
        assert made.spending.left("k1", 10**6) == 10**6 - round(settled["cost"] * 1e6)

    run(tmp_path, scene)


def test_what_does_not_fit_stays(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        fits = [user_says("Hi", model="to-good", max_tokens=4_700), user_says("Hi", model="to-good")]
        none = [
            user_says("Hi", model="to-good", max_tokens=5_000),
            user_says("Hi", model="to-good", max_tokens="5"),
            user_says("Hi", model="to-good", tools=[{"type": "web_search"}]),
            {"model": "to-good", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        ]
        headers = [*PUBLICLY, ("x-surefoot-route", "good")]
        for body in (*fits, *none):
            told = (await made.ask(CHAT, body, ANN, headers)).told
            assert told["upstreams"] == {"good": "public" if body in fits else "budget"}
        poor = Caller("zoe", "k3", upstreams=("good",))
        assert (await made.ask(CHAT, fits[1], poor, headers)).told["upstreams"] == {"good": "budget"}
        assert len(made.recorder.requests) == len(fits)

    run(tmp_path, scene)


def test_requests_at_once_share_what_is_left(tmp_path: Path) -> None:
    """Each fits when it is asked what it may do, but not all together."""

    async def scene(made: World) -> None:
        asked = user_says("Hi", model="to-good", max_tokens=2_000)
        examined = made.outward.examine(CHAT, AS_HEADERS, asked, 100)
        plan = made.front.catalog.plan(CHAT, AskedFor.of(asked, 100), ANN, AS_HEADERS)

        async def send(message: Any) -> None:
            await are_others_decided.wait()

        are_others_decided = asyncio.Event()
        answering = [asyncio.create_task(made.outward.answer("good", examined, plan, ANN, send)) for _ in range(8)]
        async with asyncio.timeout(60):
            while sum(task.done() for task in answering) < 6:
                await asyncio.sleep(0.001)
        are_others_decided.set()
        verdicts = await asyncio.gather(*answering)
        assert sorted(verdict.rule for verdict in verdicts) == ["budget"] * 6 + ["public"] * 2

    run(tmp_path, scene)


def test_a_client_that_leaves_pays_the_most(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        made.upstreams["silent"] = replace(made.upstreams["silent"], price=PRICE, pause_s=60.0)
        await made.stop()
        await made.start()
        asked = user_says("Hi", model="to-silent")
        asking = asyncio.create_task(made.ask(CHAT, asked, ANN, [*PUBLICLY, ("x-surefoot-route", "silent")]))
        while not made.recorder.requests:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        leaves, settled = audited(tmp_path)
        assert settled["cost"] == leaves["most"] > 0

    run(tmp_path, scene)


def test_without_its_spending_nothing_with_a_price_leaves(tmp_path: Path) -> None:
    async def scene(made: World) -> None:
        made.outward._spending = None
        reply = await made.ask(CHAT, user_says("Hi"), ANN, PUBLICLY)
        assert reply.told["upstreams"] == {"broken": "budget", "good": "budget"}
        assert made.recorder.requests == []

    run(tmp_path, scene)
