"""Requests that leave this server, and their way out. Imported only if the configuration names an upstream: no other
module of a server opens a connection to another machine."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import httpx2
from starlette.datastructures import Headers
from starlette.types import Message, Send

from surefoot.front.conversation import messages_in, texts_in
from surefoot.front.patterns import PrivatePatterns
from surefoot.front.prices import MILLION, millionths, most_tokens
from surefoot.front.private_marks import PrivateMarks
from surefoot.front.proxy import UpstreamLost
from surefoot.front.routing import GENERATING, RESUMED_HEADER, RoutePlan
from surefoot.front.sensitivity import (
    SENSITIVITY_HEADER,
    ExaminedRequest,
    Findings,
    Privacy,
    Upstream,
    Verdict,
    decide,
    declared_by,
)
from surefoot.front.spending import Hold, UpstreamSpending
from surefoot.front.usage import ReadReply, TokenUsage
from surefoot.server.access.line_log import LineLog
from surefoot.server.access.shares import Caller

PATH = "/v1/chat/completions"  # the only one that leaves
# Fields of a body that are sent, and those that concern this server alone. A request with any other one stays.
SENT = frozenset(
    (
        "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "temperature", "top_p", "stop",
        "n", "seed", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "logprobs",
        "top_logprobs", "reasoning_effort", "stream", "stream_options",
    )
)  # fmt: skip
LEFT_OUT = frozenset(("model", "user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"))
MOST_CHECKED_BYTES = 1 << 20  # of a body
MOST_REPLY_BYTES = 64 << 20
STREAM = "text/event-stream"
KINDS = ("application/json", STREAM)
MOST_CONNECTIONS, MOST_IDLE, IDLE_S, CONNECT_S = 64, 16, 10.0, 10.0
SYNC_S = 1.0
LOG = logging.getLogger(__name__)
Chunks = AsyncIterator[bytes]
Count = Callable[[str, Caller, TokenUsage | None, float], object]  # upstream, whose request, its tokens and its cost


class Refused(ValueError):
    """The upstream did not do it, so that it costs nothing."""


FREE = (Refused, httpx2.ConnectError, httpx2.ConnectTimeout)


@dataclass(frozen=True)
class LeavingRequest:
    upstream: Upstream
    request: ExaminedRequest
    caller: Caller
    hold: Hold | None  # None: it costs nothing, or its budget is spent

    @property
    def most(self) -> int:
        """What it may cost."""
        return self.hold.amount if self.hold is not None else 0

    @property
    def has_price(self) -> bool:
        return self.upstream.price is not None

    @cached_property
    def body(self) -> bytes:
        fields = {**self.request.fields, "model": self.upstream.model}
        if self.has_price and fields.get("stream"):
            fields["stream_options"] = {**self._stream_options, "include_usage": True}
        return json.dumps(fields).encode()

    @property
    def hides_usage(self) -> bool:
        """Whether the client did not ask for what this server has asked the upstream for."""
        return self.has_price and not self._stream_options.get("include_usage")

    @property
    def _stream_options(self) -> Mapping[str, Any]:
        given = self.request.fields.get("stream_options")
        return given if isinstance(given, dict) else {}

    @property
    def facts(self) -> dict[str, str]:
        """For the audit log."""
        user, key = self.caller.user, self.caller.key
        return {"route": self.request.path, "user": user, "key": key, "upstream": self.upstream.name}

    def cost(self, usage: TokenUsage | None) -> int:
        price = self.upstream.price
        return self.most if price is None or usage is None else price.of(usage)


class Upstreams:
    """marks: None if there is no place for them, so that everything is private. keys: by the upstream's name. spending:
    None if it is not known, so that nothing may cost anything."""

    def __init__(
        self, upstreams: Sequence[Upstream], keys: Mapping[str, str], patterns: PrivatePatterns,
        marks: PrivateMarks | None, spending: UpstreamSpending | None, audit: LineLog, deadline_s: float, count: Count,
    ) -> None:  # fmt: skip
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        self._keys = keys
        self._patterns = patterns
        self._marks = marks
        self._spending = spending
        self._audit = audit
        self._count = count
        self._deadline_s = deadline_s
        limits = httpx2.Limits(
            max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_IDLE, keepalive_expiry=IDLE_S
        )
        # Without a client around it: that would follow the environment's proxies, keep cookies and add headers.
        self._transport = httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False, limits=limits)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        is_ending = asyncio.Event()
        syncing = asyncio.create_task(self._keep_synced(is_ending))
        try:
            yield
        finally:
            is_ending.set()
            await syncing
            await self._transport.aclose()

    async def _keep_synced(self, is_ending: asyncio.Event) -> None:
        while self._marks is not None:
            try:
                await asyncio.wait_for(is_ending.wait(), SYNC_S)
            except TimeoutError:
                await asyncio.to_thread(self._marks.sync)
            else:
                self._marks.sync()
                return self._marks.close()

    # ---- what stays ----

    def examine(self, path: str, headers: Headers, given: Mapping[str, Any], num_bytes: int) -> ExaminedRequest:
        """Every request with a conversation passes here before anything is done for it: if it is private, it is
        remembered. given: its body."""
        declared = declared_by(headers.getlist(SENSITIVITY_HEADER))
        if path not in GENERATING:
            return ExaminedRequest(Findings(declared, obstacle="path"))
        detected = self._detect(given) if num_bytes <= MOST_CHECKED_BYTES else None
        messages = _messages(given)
        past = self._remember(messages, Privacy.PRIVATE if detected is None else max(declared, detected))
        if detected is None or past is None or messages is None:
            return ExaminedRequest(Findings(declared, obstacle="unchecked"))
        found = Findings(declared, detected, past, _obstacle(path, headers, given))
        fields = {name: given[name] for name in given if name in SENT}
        return ExaminedRequest(found, path, fields, messages, most_tokens(given, num_bytes))

    def _detect(self, given: Mapping[str, Any]) -> Privacy | None:
        """None: it cannot be checked."""
        try:
            is_found = self._patterns.match("\n".join(texts_in(given)))
        except (ValueError, RecursionError):
            return None
        return Privacy.PRIVATE if is_found else Privacy.PUBLIC

    def _remember(self, messages: Sequence[str] | None, level: Privacy) -> Privacy | None:
        """The most private level that they ever had. None: it is not known."""
        return self._marks.remember(messages, level) if self._marks is not None and messages is not None else None

    def decide(self, request: ExaminedRequest, plan: RoutePlan, caller: Caller) -> dict[str, Verdict]:
        names = (name for name in plan.upstreams if name in plan.models)
        return {name: self._decide(request, self._upstreams[name], plan, caller, self._left(caller)) for name in names}

    def _decide(
        self, request: ExaminedRequest, upstream: Upstream, plan: RoutePlan, caller: Caller, left: int
    ) -> Verdict:
        most = upstream.most(request.most_tokens)
        return decide(request.found, upstream, caller.upstreams, plan.upstreams, most, left)

    def _left(self, caller: Caller) -> int:
        budget = millionths(caller.upstream_budget)
        return self._spending.left(caller.key, budget) if self._spending is not None else 0

    async def _hold(self, upstream: Upstream, request: ExaminedRequest, caller: Caller) -> Hold | None:
        """None: it costs nothing, or it does not fit."""
        most, budget = upstream.most(request.most_tokens), millionths(caller.upstream_budget)
        if not most or self._spending is None:
            return None
        return await asyncio.to_thread(self._spending.hold, caller.key, budget, most)

    # ---- what leaves ----

    async def answer(self, name: str, request: ExaminedRequest, plan: RoutePlan, caller: Caller, send: Send) -> Verdict:
        """It is decided again, since another request may have made the conversation private meanwhile, or have spent
        what was left."""
        upstream = self._upstreams[name]
        hold = await self._hold(upstream, request, caller)
        past = self._remember(request.messages, request.found.level)
        found = replace(request.found, past=Privacy.PRIVATE if past is None else past)
        leaving = LeavingRequest(upstream, request, caller, hold)
        verdict = self._decide(replace(request, found=found), upstream, plan, caller, left=leaving.most)
        if verdict.leaves and not self._is_noted(leaving, verdict):
            verdict = Verdict(False, "audit")
        if not verdict.leaves:
            await self._settle(leaving, 0)
            return verdict
        return verdict if await self._has_answered(leaving, send) else Verdict(False, "failed")

    async def _has_answered(self, leaving: LeavingRequest, send: Send) -> bool:
        """What breaks off, or is given up by the client, costs the most that it may."""
        upstream, cost, usage = leaving.upstream, leaving.most, None
        head: Message | None = None
        try:
            async with asyncio.timeout(self._deadline_s), self._replying(upstream, leaving.body) as (started, chunks):
                reply = ReadReply((b"content-type", STREAM.encode()) in started["headers"], leaving.hides_usage)
                async for chunk in reply.passed(chunks):
                    if not chunk:
                        continue
                    if head is None:
                        await send(started)
                        head = started
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if head is None:
                    raise ValueError("an empty answer")
            usage = reply.usage
            cost = leaving.cost(usage)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            LOG.warning("the upstream %s failed: %s", upstream.name, error or type(error).__name__)
            cost = 0 if isinstance(error, FREE) else cost
            if head is not None:
                raise UpstreamLost(head) from error
            return False
        finally:
            self._note_end(leaving, usage, cost)
            await self._settle(leaving, cost)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async def _settle(self, leaving: LeavingRequest, cost: int) -> None:
        if self._spending is not None and leaving.hold is not None and cost != leaving.most:
            await asyncio.to_thread(self._spending.settle, leaving.hold, cost)

    def _is_noted(self, leaving: LeavingRequest, verdict: Verdict) -> bool:
        body, priced = leaving.body, {"most": leaving.most / MILLION} if leaving.has_price else {}
        return self._audit.write(
            **leaving.facts, end="leaves", rule=verdict.rule, digest=sha256(body).hexdigest(), bytes=len(body), **priced
        )

    def _note_end(self, leaving: LeavingRequest, usage: TokenUsage | None, cost: int) -> None:
        self._count(leaving.upstream.name, leaving.caller, usage, cost / MILLION)
        if leaving.has_price:
            tokens = {"prompt_tokens": usage.prompt, "answer_tokens": usage.answer} if usage is not None else {}
            self._audit.write(**leaving.facts, end="settled", cost=cost / MILLION, **tokens)

    @asynccontextmanager
    async def _replying(self, upstream: Upstream, body: bytes) -> AsyncIterator[tuple[Message, Chunks]]:
        """The head of the upstream's reply, and its body. Raises ValueError unless it is an answer."""
        key = self._keys.get(upstream.name)
        headers = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "surefoot"}
        headers |= {"authorization": f"Bearer {key}"} if key is not None else {}
        waits = httpx2.Timeout(upstream.pause_s, connect=CONNECT_S)
        request = httpx2.Request(
            "POST", f"{upstream.url.rstrip('/')}/chat/completions", headers=headers, content=body,
            extensions={"timeout": waits.as_dict()},
        )  # fmt: skip
        reply = await self._transport.handle_async_request(request)
        try:
            kind = reply.headers.get("content-type", "").partition(";")[0]
            if 400 <= reply.status_code < 500:
                raise Refused(f"status {reply.status_code}")
            if reply.status_code != 200 or kind not in KINDS or "content-encoding" in reply.headers:
                raise ValueError(f"status {reply.status_code}, {kind or 'without a type'}")
            head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind.encode())]}
            chunks = _bounded(reply)
            yield head, (chunks if kind == STREAM else _whole(chunks))
        finally:
            await reply.aclose()


def _messages(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None: they nest too deep."""
    try:
        return tuple(messages_in(given))
    except RecursionError:
        return None


def _obstacle(path: str, headers: Headers, given: Mapping[str, Any]) -> str | None:
    """Why no upstream could answer it."""
    if path != PATH:
        return "path"
    if RESUMED_HEADER in headers:
        return "resumed"
    return None if given.get("messages") and given.keys() <= SENT | LEFT_OUT else "field"


async def _bounded(reply: httpx2.Response) -> Chunks:
    num_bytes = 0
    assert isinstance(reply.stream, httpx2.AsyncByteStream)
    async for chunk in reply.stream:
        num_bytes += len(chunk)
        if num_bytes > MOST_REPLY_BYTES:
            raise ValueError(f"a reply of more than {MOST_REPLY_BYTES} bytes")
        yield chunk


async def _whole(chunks: Chunks) -> Chunks:
    """The body as one chunk, so that nothing is sent on before its end has come."""
    yield b"".join([chunk async for chunk in chunks])
