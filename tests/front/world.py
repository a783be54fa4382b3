"""A front over models that are played, with upstreams on loopback; and what may leave it, by a second reckoning."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
from starlette.types import Message, Receive, Scope, Send

from surefoot.front.catalog import Catalog
from surefoot.front.config import ModelEntry
from surefoot.front.patterns import PrivatePatterns
from surefoot.front.prices import MILLION, Price
from surefoot.front.private_marks import NAME, PrivateMarks
from surefoot.front.proxy import UpstreamLost
from surefoot.front.requests import ModelRequests
from surefoot.front.routing import ROUTE_HEADER, Route, RouteRule
from surefoot.front.sensitivity import Privacy, Upstream
from surefoot.front.spending import DAY_S, UpstreamSpending
from surefoot.front.spending import NAME as SPENDING
from surefoot.front.upstreams import Upstreams
from surefoot.front.usage import TokenUsage
from surefoot.server.access.line_log import LineLog
from surefoot.server.access.shares import Admission, Caller
from surefoot.server.access.sure_check import CONFIDENCE_HEADER, RULE_HEADER, SureRule
from surefoot.server.errors import ApiError
from tests.front.recorder import MODES, ReceivedRequest, Recorder

PUBLIC, INTERNAL, PRIVATE = Privacy
SURE = SureRule(tokens=4, mean_logprob=-1.0)
NOWHERE = "nowhere"  # an upstream whose name does not resolve
BUDGET = 0.05  # enough for four worst prices
PRICE = Price(2.0, 10.0, longest_answer=1000)
PRICED = ("good", "cut", "broken", "busy", NOWHERE)
CALLERS = (
    Caller("ann", "k1", upstreams=(*MODES, NOWHERE), upstream_budget=BUDGET),
    Caller("bob", "k2", upstreams=("good", "cut"), upstream_budget=BUDGET),
    Caller("eve"),
)
CHAT = "/v1/chat/completions"
KEY = "sk-upstream"


@dataclass
class PlayedModel:
    """Is sure of every other request; answers 503 to every tenth, as an overloaded one would."""

    name: str
    num_asked: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_asked += 1
        headers = dict(scope["headers"])
        is_sure = self.num_asked % 2 == 0 or RULE_HEADER.encode() not in headers
        status = 503 if self.num_asked % 10 == 0 else 200 if is_sure else 409
        told = [(CONFIDENCE_HEADER.encode(), json.dumps({"is_sure": is_sure}).encode())] if status != 503 else []
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": json.dumps({"model": self.name}).encode()})


class PlayedPool:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._clients = {
            name: httpx2.AsyncClient(transport=httpx2.ASGITransport(PlayedModel(name)), base_url="http://localhost")
            for name in names
        }

    @asynccontextmanager
    async def using(self, name: str, user: str, beginning: int) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(client=self._clients[name])


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.headers.get(ROUTE_HEADER, "{}"))

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert self.status
            self.body += message.get("body", b"")


@dataclass
class World:
    """One route for each upstream, one with two of them, and one without any."""

    folder: Path
    recorder: Recorder
    audit: LineLog
    front: ModelRequests = field(init=False)
    outward: Upstreams = field(init=False)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    costs: Counter[tuple[int, str]] = field(default_factory=Counter)  # millionths by day and key
    now: float = 0.0
    spending: UpstreamSpending | None = None
    upstreams: dict[str, Upstream] = field(init=False)
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        urls = {mode: self.recorder.url(mode) for mode in MODES} | {NOWHERE: "http://no-such-host.invalid/v1"}
        self.upstreams = {
            name: Upstream(name, url, "large", INTERNAL, "K", 0.02 if name == "silent" else 60.0)
            for name, url in urls.items()
        }
        for name in PRICED:
            self.upstreams[name] = replace(self.upstreams[name], price=PRICE)
        self.upstreams["good"] = replace(self.upstreams["good"], allows=PUBLIC)

    @property
    def routes(self) -> dict[str, Route]:
        own = RouteRule("good", headers={"x-task": "hard"})
        routes = [Route(name, ("small", name, "chat"), SURE, (), frozenset((name,))) for name in self.upstreams]
        two = Route("two", ("broken", "good", "chat"), None, (own,), frozenset(("broken", "good")))
        return {route.name: route for route in (*routes, two, Route("own", ("small", "chat"), SURE))}

    async def start(self, has_marks: bool = True) -> None:
        marks = PrivateMarks(self.folder / NAME, 1 << 12) if has_marks else None
        self.spending = UpstreamSpending(self.folder / SPENDING, lambda: self.now)
        keys = dict.fromkeys(self.upstreams, KEY)
        patterns = PrivatePatterns([r"SECRET-\d+"])
        self.outward = Upstreams(
            [*self.upstreams.values()], keys, patterns, marks, self.spending, self.audit, 60.0, self._count_cost
        )
        self._running = AsyncExitStack()
        await self._running.enter_async_context(self.outward.running())
        models = [ModelEntry("small", "x"), ModelEntry("chat", "y")]
        catalog = Catalog(models, routes=[_renamed(route) for route in self.routes.values()])
        pool: Any = PlayedPool(("small", "chat"))
        self.front = ModelRequests(catalog, pool, Admission(256), self._count, self.outward)

    async def stop(self) -> None:
        await self._running.aclose()

    def _count(self, route: str, model: str, why: str, seconds: float) -> None:
        assert seconds >= 0
        self.counts[route, model, why] += 1

    def _count_cost(self, upstream: str, caller: Caller, usage: TokenUsage | None, cost: float) -> None:
        self.costs[int(self.now // DAY_S), caller.key] += round(cost * MILLION)

    async def ask(self, path: str, body: Any, caller: Caller, headers: list[tuple[str, str]] | None = None) -> Reply:
        """body: JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        raw = [(name.encode(), value.encode()) for name, value in headers or []]
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"host", b"x"), (b"authorization", b"Bearer sf-own"), (b"cookie", b"own=1"), *raw],
            "state": {"caller": caller},
        }  # fmt: skip
        messages = iter([{"type": "http.request", "body": data, "more_body": False}])

        async def receive() -> Message:
            return next(messages, None) or await asyncio.Event().wait()  # type: ignore[return-value]

        reply = Reply()
        try:
            await self.front(scope, receive, reply.take)
        except ApiError as error:
            reply.status = error.status
        except UpstreamLost:
            reply.body += b"(cut)"
        return reply


def _renamed(route: Route) -> Route:
    """Routes and upstreams do not share names."""
    return Route(f"to-{route.name}", route.models, route.sure, route.rules, route.upstreams)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with Recorder().listening() as recorder:
        made = World(folder, recorder, LineLog("audit log", folder / "audit"))
        await made.start()
        yield made
        await made.stop()


# ---- what may leave, reckoned again: over texts ----

TOKEN = re.compile(r"token-\d+")


@dataclass
class Reckoning:
    """Every message of the walk has a token of its own, which tells it wherever it comes again."""

    levels: dict[str, Privacy] = field(default_factory=dict)  # by token: the most private request that had it

    def take(self, tokens: list[str], level: Privacy) -> Privacy:
        """The level of a request with these messages."""
        level = max([level, *(self.levels.get(token, PUBLIC) for token in tokens)])
        self.levels.update(dict.fromkeys(tokens, level))
        return level

    def most_private(self, received: ReceivedRequest) -> Privacy:
        found = TOKEN.findall(received.body.decode())
        return max((self.levels.get(token, PUBLIC) for token in found), default=PUBLIC)


@dataclass
class Walk:
    """Random requests: new conversations, continued, cut at the front, branched, in all APIs, by all callers."""

    draw: random.Random
    reckoning: Reckoning = field(default_factory=Reckoning)
    conversations: list[list[str]] = field(default_factory=list)
    num_tokens: int = 0
    num_unpaid: int = 0  # requests that stayed since a budget was spent

    def message(self) -> str:
        self.num_tokens += 1
        secret = f" SECRET-{self.num_tokens}" * (self.draw.random() < 0.03)
        return f"a message with the token-{self.num_tokens}, long enough to be known{secret}"

    def conversation(self) -> list[str]:
        kind = self.draw.random()
        if not self.conversations or kind < 0.4:
            made = [self.message()]
        else:
            before = self.draw.choice(self.conversations[-50:])
            if kind < 0.5:
                before = before[-self.draw.randint(1, len(before)) :]
            elif kind < 0.6:
                before = before[: self.draw.randint(1, len(before))]
            made = [*before, *(self.message() for _ in range(self.draw.choice((0, 2, 2))))]
        self.conversations.append(made[-12:])
        return made[-12:]

    def declaration(self) -> tuple[list[tuple[str, str]], Privacy]:
        words = ["public"] * 9 + ["internal"] * 3 + ["private", "Public", "", "public,public", None, 2]
        value = self.draw.choice(words)
        if value is None:
            return [], PRIVATE
        if isinstance(value, int):
            return [("x-surefoot-sensitivity", "public")] * value, PRIVATE
        known = {"public": PUBLIC, "internal": INTERNAL}
        return [("x-surefoot-sensitivity", value)], known.get(value, PRIVATE)


def body_of(path: str, messages: list[str], draw: random.Random) -> dict[str, Any]:
    if path == "/v1/completions":
        return {"prompt": messages}
    if path == "/v1/responses":
        return {"instructions": "Be brief.", "input": [{"type": "message", "content": text} for text in messages]}
    roles = ("user", "assistant", "tool")
    parts: Iterator[Mapping[str, Any]] = (
        {"role": draw.choice(roles), "content": text if draw.random() < 0.7 else [{"type": "text", "text": text}]}
        for text in messages
    )
    own = {"system": "Be brief."} if path == "/v1/messages" else {}
    return {**own, "messages": [{"role": "system", "content": f"It is {draw.random()}."}] * (not own) + [*parts]}
