"""What a fleet's gateway asks of this server: answers that may have been begun elsewhere, and how busy it is. Other
servers of the fleet ask it for blocks of the prompt cache.

Nobody is let in who does not know the fleet's key. A client's own key, host and limits are then checked as ever: the
request that the gateway forwards passes the same gate.
"""

import asyncio
import hashlib
import secrets
import time
import uuid
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from surefoot.cache import PeerBlocks
from surefoot.fleet.frames import (
    ANSWER_PATH,
    BLOCKS_PATH,
    KEY_HEADER,
    MOST_HEAD_BYTES,
    MOST_PATIENCE_S,
    MOST_QUESTION_BYTES,
    STATE_PATH,
    ForwardedRequest,
    ReplicaState,
    decode_question,
)
from surefoot.fleet.leases import LEASES_PATH, MOST_LEASE_BYTES, LeaseQuestion
from surefoot.fleet.replica.block_server import BlockServer, SentCounters
from surefoot.fleet.replica.framed_reply import FramedReply
from surefoot.fleet.replica.held_names import HeldNames
from surefoot.fleet.replica.lease_keeper import LeaseKeeper
from surefoot.fleet.replica.peer_client import HttpPeerClient
from surefoot.fleet.replica.request import HeldPrompts
from surefoot.server.access.gate import send_error
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.rates import NO_LIMITS
from surefoot.server.bodies import ClientGone, read_body, unless_gone
from surefoot.server.errors import ApiError
from surefoot.server.metrics import Metrics
from surefoot.server.service import Service

MIN_PATIENCE_S = 2.0  # of a gateway with a silent server
PATIENCE_STEPS = 5  # the same, in steps of the longest kind, by the cost model
PATHS = (ANSWER_PATH, STATE_PATH, BLOCKS_PATH, LEASES_PATH)


def watch_fetched(metrics: Metrics, peers: PeerBlocks) -> None:
    """Blocks from other servers."""
    counters, watch = peers.counters, metrics.watch
    watch("surefoot:fleet_fetched_tokens_total", "Tokens fetched, not computed", lambda: counters.num_fetched_tokens)
    watch("surefoot:fleet_fetched_bytes_total", "Bytes of these", lambda: counters.fetched_bytes)
    watch("surefoot:fleet_fetch_failures_total", "Fetches that broke off or were late", lambda: counters.num_failures)
    watch("surefoot:fleet_fetch_checksum_failures_total", "Damaged fetches", lambda: counters.num_damaged)


def watch_sent(metrics: Metrics, counters: SentCounters) -> None:
    metrics.watch("surefoot:fleet_sent_blocks_total", "Blocks for other servers", lambda: counters.num_blocks)
    metrics.watch("surefoot:fleet_sent_bytes_total", "Bytes of these", lambda: counters.num_bytes)


def watch_leases(metrics: Metrics, keeper: LeaseKeeper) -> None:
    """Rates that this server keeps for gateways. All are 0 on the servers that do not keep them."""
    watch = metrics.watch
    watch("surefoot:fleet_lease_gateways", "Gateways whose clients' rates it keeps", lambda: keeper.num_gateways)
    watch("surefoot:fleet_leased_rates", "Rates of which gateways hold a part", lambda: keeper.num_rates)
    watch("surefoot:fleet_lease_exchanges_total", "Exchanges of leases", lambda: keeper.num_exchanges)


def join_fleet(fleet_key: str, app: ASGIApp, service: Service, keys: KeyStore | None) -> ASGIApp:
    """The application as a server of the fleet: an `InFront` of the server, once it has the fleet's key."""
    held = _hold_prompts(service, fleet_key)
    keeper = LeaseKeeper(lambda: keys.limits if keys is not None else NO_LIMITS)
    watch_leases(service.metrics, keeper)
    return ReplicaMiddleware(app, service, keeper, fleet_key, held)


def _hold_prompts(service: Service, fleet_key: str) -> HeldPrompts | None:
    """None: the server has no prompt cache on disk."""
    tier = service.llm.disk_tier
    if tier is None:
        return None
    peers = tier.use_peers(HttpPeerClient(fleet_key))
    watch_fetched(service.metrics, peers)
    return HeldPrompts(tier, peers, HeldNames(tier.store.contains))


class ReplicaMiddleware:
    """Answers gateways and other servers; everything else goes to the application."""

    def __init__(
        self, app: ASGIApp, service: Service, keeper: LeaseKeeper, fleet_key: str, held: HeldPrompts | None
    ) -> None:
        self._app = app
        self._service = service
        self._keeper = keeper
        self._key = _digest(fleet_key)
        self._held = held
        self._most_bytes = MOST_HEAD_BYTES + service.settings.max_body_bytes
        self._boot, self._started = uuid.uuid4().hex, time.time()
        self._blocks = BlockServer(held.tier) if held is not None else None
        if self._blocks is not None:
            watch_sent(service.metrics, self._blocks.counters)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        with suppress(ClientGone):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_key(scope)
            if scope["path"] == STATE_PATH:
                await JSONResponse((await self._state(scope)).model_dump())(scope, receive, send)
                return
            if scope["path"] == BLOCKS_PATH:
                await self._send_blocks(receive, send)
                return
            if scope["path"] == LEASES_PATH:
                question = LeaseQuestion.model_validate_json(await read_body(receive, MOST_LEASE_BYTES))
                await JSONResponse(self._keeper.answer(question).model_dump())(scope, receive, send)
                return
            message = ForwardedRequest.decode(await read_body(receive, self._most_bytes))
        except ApiError as error:
            await send_error(scope, send, error)
        except ValueError as error:
            await send_error(scope, send, ApiError(400, str(error)))
        else:
            alive = partial(patience_s, self._service)
            await FramedReply(self._app, alive, receive, send, message, self._held).run(scope)

    async def _state(self, scope: Scope) -> ReplicaState:
        """A gateway that says what it has heard learns what this server holds."""
        state = await replica_state(self._service, self._boot, self._started, self._held)
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        if self._held is None or "since" not in asked:
            return state
        since = int(asked["since"][0]) if asked.get("boot") == [self._boot] else 0
        return state.model_copy(update={"names": await asyncio.to_thread(self._held.names.changes, since)})

    async def _send_blocks(self, receive: Receive, send: Send) -> None:
        question = decode_question(await read_body(receive, MOST_QUESTION_BYTES))
        if self._blocks is None:
            raise ApiError(404, "this server keeps no blocks on disk")
        await unless_gone(receive, self._blocks.answer(question, send))

    def _check_key(self, scope: Scope) -> None:
        """Without the fleet's key the paths do not exist, for anybody."""
        given = Headers(scope=scope).get(KEY_HEADER, "")
        if not secrets.compare_digest(_digest(given), self._key):
            raise ApiError(404, "there is nothing at this path")


def patience_s(service: Service) -> float | None:
    """How long a gateway may hear nothing of this server, by the engine's own cost model. None: the engine is stuck."""
    llm = service.llm
    seconds = min(MOST_PATIENCE_S, max(MIN_PATIENCE_S, PATIENCE_STEPS * llm.progress.load.longest_step_ms / 1000))
    return seconds if llm.is_alive(seconds) else None


async def replica_state(service: Service, boot: str, started: float, held: HeldPrompts | None) -> ReplicaState:
    """Computed between two steps, so that it waits as long as the engine is stuck."""
    backlog = await service.llm.between_steps(service.llm.engine.backlog)
    fetching = held.peers.typical_speed() if held is not None else None
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
