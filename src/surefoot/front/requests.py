"""Requests for models: each goes to the process of the model that its body names. /openapi.json is the same for all, so
one process is asked, once."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import httpx2
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from surefoot.front.catalog import Catalog
from surefoot.front.model_process import ModelProcess
from surefoot.front.pool import ModelPool, lost
from surefoot.front.proxy import ProxiedRequest, UpstreamLost, forward
from surefoot.front.routing import (
    RESUMED_HEADER,
    ROUTE_HEADER,
    AskedFor,
    ReplyReceiver,
    RoutedReplies,
    RoutePlan,
    object_in,
)
from surefoot.front.sensitivity import ExaminedRequest, Findings, Verdict
from surefoot.server.access.front_gate import CALLER_HEADER, PATIENT_HEADER, caller_header
from surefoot.server.access.gate import check_admin
from surefoot.server.access.line_log import ANTHROPIC_HEADER, HEADER, current_id
from surefoot.server.access.request_context import RequestContext
from surefoot.server.access.shares import Admission, Caller, asking_user
from surefoot.server.access.sure_check import RULE_HEADER, SureRule
from surefoot.server.batch.input_lines import BatchLine
from surefoot.server.batch.lines import check_line
from surefoot.server.bodies import BodyWork, ClientGone, read_body, unless_gone
from surefoot.server.errors import ApiError

# What the front has checked, and what only it may say.
OWN_HEADERS = (
    b"authorization", b"x-api-key", b"origin", HEADER.encode(), CALLER_HEADER.encode(), PATIENT_HEADER.encode(),
    RULE_HEADER.encode(), ROUTE_HEADER.encode(),
)  # fmt: skip
REPLY_HEADERS = (HEADER.encode(), ANTHROPIC_HEADER.encode())  # the front adds them itself
PASSING = (429, 503, 504)  # a line of a batch is tried again
RETRY_S = 1.0
WITH_SAMPLING = ("/v1/chat/completions", "/v1/completions")
SCHEMA = "/openapi.json"
UNEXAMINED = ExaminedRequest(Findings())


class Outward(Protocol):
    """What may leave this server, and how. It is there only if the configuration names an upstream."""

    def examine(self, path: str, headers: Headers, given: Mapping[str, Any], num_bytes: int) -> ExaminedRequest: ...

    def decide(self, request: ExaminedRequest, plan: RoutePlan, caller: Caller) -> Mapping[str, Verdict]: ...

    async def answer(self, name: str, request: ExaminedRequest, plan: RoutePlan, caller: Caller, send: Send) -> Verdict:
        """Whether the upstream has answered. If not, the client has got nothing yet. Raises UpstreamLost if it ended in
        the middle of its answer."""

    def running(self) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True)
class ModelRequests:
    """An ASGI application for all routes that belong to a model."""

    catalog: Catalog
    pool: ModelPool
    admission: Admission
    count_routed: Callable[[str, str, str, float], None]  # route, model, why it answered, seconds until its end
    outward: Outward | None = None
    body_work: BodyWork = field(default_factory=BodyWork)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["state"]["caller"]
        body = await read_body(receive)
        asking_user.set(caller.user)
        headers = Headers(scope=scope)
        asked, examined = await self.body_work.run(len(body), partial(self._read, scope["path"], headers, body))
        replies = self._replies(self.catalog.plan(scope["path"], asked, caller, headers), examined, caller, headers)
        with self.admission.admit(caller), suppress(ClientGone):
            answering = self._answer_by(replies, examined, scope, trusted_request(scope, body), send, asked.beginning)
            await unless_gone(receive, answering)

    def _read(self, path: str, headers: Headers, body: bytes) -> tuple[AskedFor, ExaminedRequest]:
        given = object_in(body)
        return AskedFor.of(given, len(body)), self._examine(path, headers, given, len(body))

    def _examine(self, path: str, headers: Headers, given: Mapping[str, Any], num_bytes: int) -> ExaminedRequest:
        return self.outward.examine(path, headers, given, num_bytes) if self.outward is not None else UNEXAMINED

    def _replies(self, plan: RoutePlan, examined: ExaminedRequest, caller: Caller, headers: Headers) -> RoutedReplies:
        """Of the models that may be asked: without the upstreams for which the request may not leave."""
        verdicts = self.outward.decide(examined, plan, caller) if self.outward is not None else {}
        staying = [name for name in plan.upstreams if name not in verdicts or not verdicts[name].leaves]
        rules = {name: verdict.rule for name, verdict in verdicts.items() if name in plan.models}
        return RoutedReplies(plan.without(staying), RESUMED_HEADER in headers, rules=rules)

    async def _answer_by(
        self, replies: RoutedReplies, examined: ExaminedRequest, scope: Scope, request: ProxiedRequest, send: Send,
        beginning: int,
    ) -> None:  # fmt: skip
        plan, began = replies.plan, time.monotonic()
        for number, model in enumerate(plan.models):
            receiver = ReplyReceiver(replies, number, send)
            if model in plan.upstreams:
                has_answered = await self._answer_outside(model, examined, scope, receiver)
            else:
                ruled = request.with_headers(rule_header(plan.rule_for(number)))
                await self._answer(model, scope, ruled, receiver, beginning)
                has_answered = not receiver.has_declined
            if has_answered:
                return self._count(plan, number, began)

    def _count(self, plan: RoutePlan, number: int, began: float) -> None:
        if plan.route:
            self.count_routed(plan.route, plan.models[number], plan.why_of(number), time.monotonic() - began)

    async def _answer_outside(
        self, name: str, examined: ExaminedRequest, scope: Scope, receiver: ReplyReceiver
    ) -> bool:
        """Whether the upstream has answered."""
        assert self.outward is not None
        replies = receiver.replies
        try:
            verdict = await self.outward.answer(name, examined, replies.plan, scope["state"]["caller"], receiver)
        except UpstreamLost as error:
            await end_reply(name, error, scope["path"], receiver)
            return True
        replies.rules[name] = verdict.rule
        return verdict.leaves

    async def _answer(self, name: str, scope: Scope, request: ProxiedRequest, send: Send, beginning: int) -> None:
        try:
            async with self.pool.using(name, scope["state"]["caller"].user, beginning) as process:
                await forward(process.client, request, send, dropping=REPLY_HEADERS)
        except UpstreamLost as error:
            await end_reply(name, error, scope["path"], send)

    async def answer_line(self, line: BatchLine, context: RequestContext) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer to a line of a batch. Raises ApiError if it may be tried again."""
        url, given = check_line(line)
        asked = AskedFor.of(given, context.num_body_bytes)
        examined = self._examine(url, Headers(), given, context.num_body_bytes)
        plan = self.catalog.plan(url, asked, context.caller, Headers())
        replies = self._replies(plan, examined, context.caller, Headers())  # it declares nothing, so it stays
        began = time.monotonic()
        headers = [*trusted_headers(context.caller), (PATIENT_HEADER.encode(), b"%d" % (context.created or 0))]
        with self.admission.admit(context.caller):
            for number, model in enumerate(replies.plan.models):
                own = [*headers, *rule_header(replies.plan.rule_for(number))]
                async with asking(self.pool, model, context.caller, asked.beginning) as process:
                    reply = await process.client.post(url, json=_seeded(url, given, line), headers=own)
                if not replies.declines(number, reply.status_code, Headers(raw=reply.headers.raw)):
                    self._count(replies.plan, number, began)
                    break
        if reply.status_code in PASSING:
            raise ApiError(503, "the model is busy", headers={"Retry-After": reply.headers.get("retry-after", "1")})
        return reply.status_code, reply.json()


@asynccontextmanager
async def asking(pool: ModelPool, name: str, caller: Caller, beginning: int = 0) -> AsyncIterator[ModelProcess]:
    """The model's process, for a whole reply. Raises ApiError if it ends meanwhile."""
    try:
        async with pool.using(name, caller.user, beginning) as process:
            yield process
    except httpx2.TransportError as error:
        raise lost(name, "has ended while it answered", RETRY_S) from error


def trusted_request(scope: Scope, body: bytes) -> ProxiedRequest:
    """The request as a model's process gets it: the front says whose it is, not the client."""
    headers = trusted_headers(scope["state"]["caller"])
    return ProxiedRequest.of(scope, body).with_headers(headers, dropping=OWN_HEADERS)


def trusted_headers(caller: Caller) -> list[tuple[bytes, bytes]]:
    return [(CALLER_HEADER.encode(), caller_header(caller).encode()), (HEADER.encode(), current_id().encode())]


def rule_header(rule: SureRule | None) -> list[tuple[bytes, bytes]]:
    return [] if rule is None else [(RULE_HEADER.encode(), rule.model_dump_json(by_alias=True).encode())]


def _seeded(url: str, given: Mapping[str, Any], line: BatchLine) -> dict[str, Any]:
    """The line's body, with a seed that a second try will have too."""
    if url not in WITH_SAMPLING or given.get("seed") is not None:
        return dict(given)
    return {**given, "seed": line.seed}


async def end_reply(name: str, error: UpstreamLost, path: str, send: Send) -> None:
    """End the reply of a model that is lost. Raises ApiError if there is none yet."""
    problem = lost(name, "has ended while it answered", RETRY_S)
    if error.reply is None:
        raise problem from error
    last = last_words(error.reply, problem, path)
    if last is None:
        raise error  # the connection is cut, so that nobody takes the part for the whole
    await send({"type": "http.response.body", "body": last})


def last_words(reply: Message, error: ApiError, path: str) -> bytes | None:
    """What ends a stream whose model is lost, in the form of its API; None if that cannot be said inside the reply."""
    kind = dict(reply["headers"]).get(b"content-type", b"").partition(b";")[0]
    body = json.dumps(error.body_for(path)).encode()
    if kind == b"text/event-stream":
        event = b"event: error\n" if path.startswith("/v1/messages") else b""
        return b"\n\n" + event + b"data: " + body + b"\n\n"
    return b"\n" + body + b"\n" if kind == b"application/x-ndjson" else None


def api_schema(catalog: Catalog, pool: ModelPool) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Only if no model of the caller's is loaded is the first one loaded for it."""
    schema: bytes | None = None

    async def ask(caller: Caller) -> bytes:
        first = catalog.find(None, caller)
        loaded = (entry for entry in catalog.of(caller) if entry.name in pool.processes)
        async with asking(pool, next(loaded, first).name, caller) as process:
            reply = await process.client.get(SCHEMA, headers=trusted_headers(caller))
        if reply.status_code != 200:
            raise ApiError(503, "the schema cannot be read now", headers={"Retry-After": "1"})
        return reply.content

    async def serve(http: HttpRequest) -> Response:
        nonlocal schema
        schema = schema or await ask(http.state.caller)
        return Response(schema, media_type="application/json")

    return serve


@dataclass(frozen=True)
class ModelOverview:
    """An ASGI application: what operators see of one model and change, passed on to the model's process. Whoever
    watches a model does not keep it in memory: the events end when it is unloaded."""

    catalog: Catalog
    pool: ModelPool
    has_keys: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(HttpRequest(scope), self.has_keys, "the overview covers all users")
        asked = QueryParams(scope["query_string"]).get("model")
        name = self.catalog.find(asked, scope["state"]["caller"]).name
        process = self.pool.processes.get(name)
        if process is None:
            raise ApiError(409, f"the model {name!r} is not loaded", code="model_not_loaded")
        request = trusted_request(scope, await read_body(receive))
        try:
            with suppress(ClientGone):
                await unless_gone(receive, forward(process.client, request, send, dropping=REPLY_HEADERS))
        except UpstreamLost as error:
            if error.reply is None:
                raise lost(name, "has ended", RETRY_S) from error
            await send({"type": "http.response.body", "body": b""})
