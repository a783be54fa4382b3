"""What a fleet's gateway asks of this server: answers that may have been begun elsewhere, and how busy it is. Other
servers of the fleet ask it for blocks of the prompt cache.

Nobody is let in who does not know the fleet's key. A client's own key, host and limits are then checked as ever: the
request that the gateway hands over passes the same gate.
"""

import asyncio
import hashlib
import json
import secrets
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.api.continuation import SentToken
from surefoot.server.access.gate import send_error
from surefoot.server.block_handout import BlockHandout
from surefoot.server.disconnection import ClientGone, unless_gone
from surefoot.server.errors import ApiError
from surefoot.server.forwarding import read_body
from surefoot.server.frames import (
    ANSWER_PATH,
    BLOCKS_PATH,
    KEY_HEADER,
    MOST_HEAD_BYTES,
    MOST_PATIENCE_S,
    MOST_QUESTION_BYTES,
    STATE_PATH,
    FrameKind,
    HandedRequest,
    ReplicaState,
    decode_question,
    encode_frame,
    encode_tokens,
    json_frame,
)
from surefoot.server.handover import Handover
from surefoot.server.lease_keeper import LeaseKeeper
from surefoot.server.lease_messages import LEASES_PATH, MOST_LEASE_BYTES, LeaseQuestion
from surefoot.server.metrics import Metrics
from surefoot.server.service import Service

ALIVE_S = 0.5  # between signs of life
MIN_PATIENCE_S = 2.0  # of a gateway with a silent server
PATIENCE_STEPS = 5  # the same, in steps of the longest kind, by the cost model

Alive = Callable[[], float | None]  # after how many seconds of silence a gateway may give up; None: already


class ReplicaDoor:
    """The gateway's way in, in front of the application. Without a fleet's key nobody is let in."""

    def __init__(self, app: ASGIApp, service: Service, keeper: LeaseKeeper) -> None:
        self._app = app
        self._service = service
        self._keeper = keeper
        fleet_key = service.settings.fleet_key
        self._key = None if fleet_key is None else _digest(fleet_key)
        self._most_bytes = MOST_HEAD_BYTES + service.settings.max_body_bytes
        self._boot, self._started = uuid.uuid4().hex, time.time()
        self._handout = _open_handout(service)
        if fleet_key is not None:
            watch_leases(service.metrics, keeper)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (ANSWER_PATH, STATE_PATH, BLOCKS_PATH, LEASES_PATH):
            await self._app(scope, receive, send)
            return
        with suppress(ClientGone):
            await self._let_in(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_key(scope)
            if scope["path"] == STATE_PATH:
                await _send_json(send, (await self._state(scope)).model_dump())
                return
            if scope["path"] == BLOCKS_PATH:
                await self._hand_out(receive, send)
                return
            if scope["path"] == LEASES_PATH:
                question = LeaseQuestion.model_validate_json(await read_body(receive, MOST_LEASE_BYTES))
                await _send_json(send, self._keeper.answer(question).model_dump())
                return
            handed = HandedRequest.decode(await read_body(receive, self._most_bytes))
        except ApiError as error:
            await send_error(scope, send, error)
        except ValueError as error:
            await send_error(scope, send, ApiError(400, str(error)))
        else:
            alive = partial(patience_s, self._service)
            await FramedReply(self._app, alive, receive, send, handed).run(scope)

    async def _state(self, scope: Scope) -> ReplicaState:
        """A gateway that says what it has heard learns what this server holds."""
        state, names = await replica_state(self._service, self._boot, self._started), self._service.held_names
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        if names is None or "since" not in asked:
            return state
        since = int(asked["since"][0]) if asked.get("boot") == [self._boot] else 0
        return state.model_copy(update={"names": await asyncio.to_thread(names.changes, since)})

    async def _hand_out(self, receive: Receive, send: Send) -> None:
        question = decode_question(await read_body(receive, MOST_QUESTION_BYTES))
        if self._handout is None:
            raise ApiError(404, "this server keeps no blocks on disk")
        await unless_gone(receive, self._handout.answer(question, send))

    def _check_key(self, scope: Scope) -> None:
        """Without a fleet's key the paths do not exist, for anybody."""
        given = Headers(scope=scope).get(KEY_HEADER, "")
        if self._key is None or not secrets.compare_digest(_digest(given), self._key):
            raise ApiError(404, "there is nothing at this path")


def _open_handout(service: Service) -> BlockHandout | None:
    """None: the server is in no fleet, or has no prompt cache on disk."""
    tier, metrics = service.llm.disk_tier, service.metrics
    if service.settings.fleet_key is None or tier is None:
        return None
    handout = BlockHandout(tier)
    counters = handout.counters
    metrics.watch("surefoot:fleet_sent_blocks_total", "Blocks for other servers", lambda: counters.num_blocks)
    metrics.watch("surefoot:fleet_sent_bytes_total", "Bytes of these", lambda: counters.num_bytes)
    return handout


def watch_leases(metrics: Metrics, keeper: LeaseKeeper) -> None:
    """Metrics of the rates that this server keeps for gateways. All are 0 on the servers that do not keep them."""
    watch = metrics.watch
    watch("surefoot:fleet_lease_gateways", "Gateways whose clients' rates it keeps", lambda: keeper.num_gateways)
    watch("surefoot:fleet_leased_rates", "Rates of which gateways hold a part", lambda: keeper.num_rates)
    watch("surefoot:fleet_lease_exchanges_total", "Exchanges of leases", lambda: keeper.num_exchanges)


def patience_s(service: Service) -> float | None:
    """How long a gateway may hear nothing of this server, by the engine's own cost model. None: the engine is stuck."""
    llm = service.llm
    seconds = min(MOST_PATIENCE_S, max(MIN_PATIENCE_S, PATIENCE_STEPS * llm.progress.load.longest_step_ms / 1000))
    return seconds if llm.is_alive(seconds) else None


async def replica_state(service: Service, boot: str, started: float) -> ReplicaState:
    """Computed between two steps, so that it waits as long as the engine is stuck."""
    backlog = await service.llm.between_steps(service.llm.engine.backlog)
    tier = service.llm.disk_tier
    fetching = tier.peers.typical_speed() if tier is not None and tier.peers is not None else None
    return ReplicaState(
        boot=boot,
        started=started,
        identity=service.fingerprint,
        is_draining=service.is_draining,
        patience_s=patience_s(service),
        backlog_tokens=backlog.num_tokens,
        token_ms=backlog.token_ms,
        fetch_ms=None if fetching is None else 1000 * fetching.start_s,
        fetch_token_ms=0.0 if fetching is None else 1000 * fetching.token_s,
    )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


async def _send_json(send: Send, value: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


class FramedReply:
    """The application's reply to a handed-over request, in frames: tokens first, then the bytes that they make."""

    def __init__(self, app: ASGIApp, alive: Alive, receive: Receive, send: Send, handed: HandedRequest) -> None:
        self._app = app
        self._alive = alive
        self._receive = receive
        self._send = send
        self._handed = handed
        self._handover = Handover(
            handed.identity, handed.sent, self._tell, is_patient=handed.is_patient, hint=handed.hint,
            names=handed.names, share=handed.share, is_charged=handed.is_charged,
        )  # fmt: skip
        self._num_skipped = handed.num_skipped
        self._body: bytes | None = handed.body
        self._pending = bytearray()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()

    async def run(self, scope: Scope) -> None:
        headers = [(b"content-type", b"application/octet-stream"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        living = asyncio.ensure_future(self._live())
        try:
            await self._app(self._inner_scope(scope), self._inner_receive, self._inner_send)
        finally:
            living.cancel()
            with suppress(asyncio.CancelledError):
                await living
        await self._send({"type": "http.response.body", "body": bytes(self._pending) + self._last_frame()})

    def _last_frame(self) -> bytes:
        handover = self._handover
        if handover.return_reason:
            return json_frame(FrameKind.RETURNED, [handover.return_reason, handover.is_unmatched])
        if handover.is_charged:
            return json_frame(FrameKind.END, [handover.num_requests, handover.num_tokens])
        return encode_frame(FrameKind.END, b"")

    def _inner_scope(self, scope: Scope) -> Scope:
        handed = self._handed
        return {
            **scope,
            "method": handed.method,
            "path": handed.path,
            "raw_path": handed.path.encode(),
            "query_string": handed.query.encode(),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in handed.headers],
            "state": {**scope.get("state", {}), "handover": self._handover},
        }

    async def _inner_receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    async def _inner_send(self, message: Message) -> None:
        if self._handover.return_reason:
            return
        if message["type"] == "http.response.start":
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self._pending += json_frame(FrameKind.HEAD, [message["status"], headers])
        elif body := message.get("body", b""):
            # Parts, not bytes: the last event of a stream has times, which differ in length.
            if self._num_skipped:
                self._num_skipped -= 1
            else:
                self._pending += encode_frame(FrameKind.BODY, body)
        await self._flush()

    def _tell(self, tokens: list[SentToken]) -> None:
        self._pending += json_frame(FrameKind.TOKENS, encode_tokens(tokens))
        self._wake.set()

    async def _live(self) -> None:
        """Send tokens that no bytes follow soon, and signs of life."""
        while True:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), ALIVE_S)
            except TimeoutError:
                if (patience_s := self._alive()) is not None:
                    self._pending += json_frame(FrameKind.ALIVE, patience_s)
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            if data := bytes(self._pending):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                del self._pending[: len(data)]  # only now: a cancelled sending has sent nothing
