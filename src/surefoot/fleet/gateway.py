"""The fleet's one address: passes requests on to replicas, and replies on to clients."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from secrets import compare_digest
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from surefoot.fleet.failover import STALL_S, FleetAnswer, GaveUp, ReplyHead
from surefoot.fleet.frames import KEY_HEADER, ForwardedRequest
from surefoot.fleet.gateway_metrics import CONTENT_TYPE, GatewayMetrics
from surefoot.fleet.lease_exchange import LeaseExchange
from surefoot.fleet.leases import RequestCharge
from surefoot.fleet.members import Members
from surefoot.fleet.request_names import PromptText
from surefoot.server.access.gate import check_admin, client_key, send_error, shutting_down
from surefoot.server.access.request_context import ReplyIdentity
from surefoot.server.access.shares import asking_user
from surefoot.server.bodies import HOP_BY_HOP, BodyWork, ClientGone, check_bounds, read_body, unless_gone
from surefoot.server.errors import ApiError

LOG = logging.getLogger(__name__)
# Host and origin were checked here: the replicas' own names are not those that clients use.
NOT_HANDED = HOP_BY_HOP | {b"content-length", b"host", b"origin"}
STATEFUL = ("/v1/files", "/v1/batches", "/admin/")  # kept on one machine's disk
Beside = Callable[[], Coroutine[Any, Any, None]]  # runs for as long as the gateway does
HEALTH, READY, METRICS = "/health", "/ready", "/metrics"  # that the gateway answers itself


class Gateway:
    """An ASGI application over a fleet's replicas, behind the gate. Clients' rates are charged here; all other limits
    of a user are the replicas'."""

    def __init__(
        self,
        members: Members,
        *,
        has_keys: bool = False,
        stall_s: float = STALL_S,
        beside: Sequence[Beside] = (),
    ) -> None:
        """stall_s: without a token, after which a request is given up."""
        self.is_draining = False
        self._members = members
        self._has_keys = has_keys
        self._stall_s = stall_s
        self._beside = beside
        self._exchange = LeaseExchange(members)
        self._metrics = GatewayMetrics(members, self._exchange)
        self._body_work = BodyWork()
        self._running: set[asyncio.Future[None]] = set()  # replies that are passed on
        self._is_aborted = False

    @property
    def num_failovers(self) -> int:
        return self._metrics.num_failovers

    @property
    def num_requests(self) -> int:
        return len(self._running)

    def count_refusal(self, status: int) -> None:
        """The gate refused a request."""
        self._metrics.count_request(status)

    def abort_all(self) -> None:
        """End all replies. A client whose reply has begun can go on with it at another gateway."""
        self._is_aborted = True
        for reply in self._running:
            reply.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            with suppress(ClientGone):
                await self._answer_or_refuse(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        work = (self._members.watch, self._exchange.run, *self._beside)
        tasks = [asyncio.ensure_future(run()) for run in work]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._members.client.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in (HEALTH, READY):
            await self._probe(scope, receive, send)
            return
        statuses: list[int] = []

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._answer(scope, receive, counted)
        except ApiError as error:
            await send_error(scope, counted, error)
        finally:
            self._metrics.count_request(statuses[0] if statuses else None)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == METRICS:
            check_admin(HttpRequest(scope), self._has_keys, "the metrics cover all users")
            await Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})(scope, receive, send)
            return
        if scope["path"].startswith(STATEFUL):
            raise ApiError(
                501,
                "files, batches, keys and models are each server's own: ask a replica, or use surefoot run-batch",
            )
        if scope["path"].startswith("/fleet/"):
            raise ApiError(404, "there is nothing at this path")
        request = forwarded_request(scope, await read_body(receive))
        began = time.monotonic()
        user = client_key(dict(request.headers))
        asking_user.set(user)
        # What a server would refuse at once is not sent to it: the bytes alone would hold up others.
        await self._body_work.run(len(request.body), partial(check_bounds, request.body))
        charge = await self._charge(user) if request.method == "POST" else None
        request = replace(request, is_charged=charge is not None)
        answer = FleetAnswer(self._members, request, PromptText.of(request.body, user), user, self._stall_s)
        reply = asyncio.ensure_future(self._pass_on(answer, send))
        self._running.add(reply)
        try:
            await unless_gone(receive, reply)
        finally:
            self._running.discard(reply)
            self._metrics.count_answer(answer, began)
            if charge is not None:
                charge.settle(*answer.used)

    async def _charge(self, key: str) -> RequestCharge | None:
        """Raises ApiError if a rate of the key is used up."""
        await self._exchange.begun()
        return self._exchange.leases.charge(key)

    async def _pass_on(self, answer: FleetAnswer, send: Send) -> None:
        has_begun, num_left = False, -1  # bytes of the body; negative: its length is not told
        try:
            async with aclosing(answer.parts()) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, ReplyHead):
                        has_begun, num_left = True, -1 if part.length is None else part.length
                        await send(_start_message(part))
                    else:
                        # Who has the whole body may ask again at once, which must not come before the end.
                        num_left -= len(part)
                        await send({"type": "http.response.body", "body": part, "more_body": num_left != 0})
        except GaveUp as error:
            failure = ApiError(503, f"no replica answers: {error}", headers={"Retry-After": "5"})
        except asyncio.CancelledError:
            if not self._is_aborted:
                raise
            failure = shutting_down()
        else:
            if num_left != 0:
                await send({"type": "http.response.body", "body": b""})
            return
        if not has_begun:
            raise failure
        # Without an end the connection breaks, so that the client does not take a part for the whole.
        LOG.warning("a reply breaks off: %s", failure.message)

    async def _probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_ready, num_all = self._members.num_ready, len(self._members.all)
        is_ready = scope["path"] == HEALTH or (num_ready > 0 and not self.is_draining)
        why = "draining" if self.is_draining else "no replica is ready"
        status = {"status": "ok" if is_ready else why, "ready": num_ready, "of": num_all}
        more = {"rates": self._rates()} if may_watch(scope, self._members.key) else {}
        reply = JSONResponse({**status, "failovers": self.num_failovers, **more}, 200 if is_ready else 503)
        await reply(scope, receive, send)

    def _rates(self) -> dict[str, Any]:
        exchange, keeper = self._exchange, self._exchange.status
        return {
            "keeper": None if exchange.keeper is None else exchange.keeper.url,
            "kept_s": None if keeper is None else round(keeper.seconds, 1),
            "users": None if keeper is None else keeper.num_users,
            "gateways": None if keeper is None else keeper.num_gateways,
            "leases": exchange.leases.num_rates,
            "exchanges": exchange.num_exchanges,
            "failed_exchanges": exchange.num_failures,
            "refused_requests": exchange.leases.num_refused,
        }


def may_watch(scope: Scope, key: str) -> bool:
    """Whether a client may read what covers all users: from this machine, or with the fleet's key."""
    client, server = scope.get("client"), scope.get("server")
    is_here = client is not None and server is not None and client[0] == server[0]
    if is_here or (client is not None and ip_address(client[0]).is_loopback):
        return True
    given = dict(scope["headers"]).get(KEY_HEADER.encode(), b"")
    return compare_digest(given, key.encode())


def forwarded_request(scope: Scope, body: bytes) -> ForwardedRequest:
    """The client's request, with what a server would choose by itself."""
    kept = tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"] if name not in NOT_HANDED
    )
    return ForwardedRequest(
        scope["method"], scope["path"], scope["query_string"].decode("latin-1"),
        (*kept, ("host", "127.0.0.1"), ("content-length", str(len(body)))), body, ReplyIdentity.draw(),
    )  # fmt: skip


def _start_message(head: ReplyHead) -> Message:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    return {"type": "http.response.start", "status": head.status, "headers": headers}
