"""Requests that leave this server, and their way out. Imported only if the configuration names an upstream: no other
module of a server opens a connection to another machine."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx2
from starlette.datastructures import Headers
from starlette.types import Message, Send

from surefoot.front.conversation import messages_in, texts_in
from surefoot.front.patterns import PrivatePatterns
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


class Upstreams:
    """marks: None if there is no place for them, so that everything is private. keys: by the upstream's name."""

    def __init__(
        self, upstreams: Sequence[Upstream], keys: Mapping[str, str], patterns: PrivatePatterns,
        marks: PrivateMarks | None, audit: LineLog, deadline_s: float,
    ) -> None:  # fmt: skip
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        self._keys = keys
        self._patterns = patterns
        self._marks = marks
        self._audit = audit
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
        return ExaminedRequest(found, path, {name: given[name] for name in given if name in SENT}, messages)

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
        return {name: decide(request.found, self._upstreams[name], caller.upstreams, plan.upstreams) for name in names}

    # ---- what leaves ----

    async def answer(self, name: str, request: ExaminedRequest, plan: RoutePlan, caller: Caller, send: Send) -> Verdict:
        """It is decided again, since another request may have made the conversation private meanwhile."""
        past = self._remember(request.messages, request.found.level)
        found = replace(request.found, past=Privacy.PRIVATE if past is None else past)
        upstream = self._upstreams[name]
        verdict = decide(found, upstream, caller.upstreams, plan.upstreams)
        if not verdict.leaves:
            return verdict
        body = json.dumps({**request.fields, "model": upstream.model}).encode()
        if not self._is_noted(upstream, verdict, request.path, body, caller):
            return Verdict(False, "audit")
        head: Message | None = None
        try:
            async with asyncio.timeout(self._deadline_s), self._replying(upstream, body) as (started, chunks):
                async for chunk in chunks:
                    if not chunk:
                        continue
                    if head is None:
                        await send(started)
                        head = started
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if head is None:
                    raise ValueError("an empty answer")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            LOG.warning("the upstream %s failed: %s", name, error or type(error).__name__)
            if head is not None:
                raise UpstreamLost(head) from error
            return Verdict(False, "failed")
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return verdict

    def _is_noted(self, upstream: Upstream, verdict: Verdict, path: str, body: bytes, caller: Caller) -> bool:
        return self._audit.write(
            route=path, user=caller.user, key=caller.key, end="leaves", upstream=upstream.name, rule=verdict.rule,
            digest=sha256(body).hexdigest(), bytes=len(body),
        )  # fmt: skip

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
