"""The fleet's one address: passes requests on to replicas, and replies on to clients."""

import asyncio
import json
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from surefoot.fleet.failover import FleetAnswer, GaveUp, ReplyHead
from surefoot.fleet.lease_exchange import LeaseExchange
from surefoot.fleet.leases import RequestCharge
from surefoot.fleet.members import Members
from surefoot.fleet.request_names import PromptText
from surefoot.server.access.gate import client_key, send_error
from surefoot.server.disconnection import ClientGone, unless_gone
from surefoot.server.errors import ApiError
from surefoot.server.forwarding import HOP_BY_HOP, read_body
from surefoot.server.frames import HandedRequest
from surefoot.server.handover import ReplyIdentity

NOT_HANDED = HOP_BY_HOP | {b"content-length"}
STATEFUL = ("/v1/files", "/v1/batches")  # kept on one machine's disk
HEALTH, READY = "/health", "/ready"


class Gateway:
    """An ASGI application over a fleet's replicas. Clients' rates are charged here; their keys and all other limits are
    checked by the replicas."""

    def __init__(self, members: Members, max_body_bytes: int = 4 << 20) -> None:
        self._members = members
        self._most_bytes = max_body_bytes
        self._exchange = LeaseExchange(members)
        self.num_failovers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            with suppress(ClientGone):
                await self._answer_or_refuse(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        tasks = [asyncio.ensure_future(self._members.watch()), asyncio.ensure_future(self._exchange.run())]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._members.client.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except ApiError as error:
            await send_error(scope, send, error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in (HEALTH, READY):
            await self._probe(scope["path"], send)
            return
        if scope["path"].startswith(STATEFUL):
            raise ApiError(501, "files and batches are kept by one server: ask a replica, or use surefoot run-batch")
        if scope["path"].startswith("/fleet/"):
            raise ApiError(404, "there is nothing at this path")
        request = handed_request(scope, await read_body(receive, self._most_bytes))
        user = client_key(dict(request.headers))
        charge = await self._charge(user) if request.method == "POST" else None
        request = replace(request, is_charged=charge is not None)
        answer = FleetAnswer(self._members, request, PromptText.of(request.body, user), user)
        try:
            await unless_gone(receive, self._pass_on(answer, send))
        finally:
            self.num_failovers += answer.num_failovers
            if charge is not None:
                charge.settle(*answer.used)

    async def _charge(self, key: str) -> RequestCharge | None:
        """Raises ApiError if a rate of the key is used up."""
        await self._exchange.begun()
        return self._exchange.leases.charge(key)

    async def _pass_on(self, answer: FleetAnswer, send: Send) -> None:
        has_begun = False
        try:
            async with aclosing(answer.parts()) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, ReplyHead):
                        has_begun = True
                        await send(_start_message(part))
                    else:
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        except GaveUp as error:
            if has_begun:
                raise  # the connection breaks, so that the client does not take a part for the whole
            raise ApiError(503, f"no replica answers: {error}", headers={"Retry-After": "5"}) from error
        await send({"type": "http.response.body", "body": b""})

    async def _probe(self, path: str, send: Send) -> None:
        num_ready, num_all = self._members.num_ready, len(self._members.all)
        is_ready = path == HEALTH or num_ready > 0
        status = {"status": "ok" if is_ready else "no replica is ready", "ready": num_ready, "of": num_all}
        body = json.dumps({**status, "failovers": self.num_failovers, "rates": self._rates()})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200 if is_ready else 503, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    def _rates(self) -> dict[str, Any]:
        exchange = self._exchange
        return {
            "keeper": None if exchange.keeper is None else exchange.keeper.url,
            "leases": exchange.leases.num_rates,
            "exchanges": exchange.num_exchanges,
            "failed_exchanges": exchange.num_failures,
            "refused_requests": exchange.leases.num_refused,
        }


def handed_request(scope: Scope, body: bytes) -> HandedRequest:
    """The client's request, with what a server would choose by itself."""
    kept = tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"] if name not in NOT_HANDED
    )
    return HandedRequest(
        scope["method"], scope["path"], scope["query_string"].decode("latin-1"),
        (*kept, ("content-length", str(len(body)))), body, ReplyIdentity.draw(),
    )  # fmt: skip


def _start_message(head: ReplyHead) -> Message:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    return {"type": "http.response.start", "status": head.status, "headers": headers}
