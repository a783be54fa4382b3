"""A request that a fleet's gateway forwards to this server, and that another server may have begun.

The gateway chooses what a server would choose by itself: id, time and seed. This server tells it every token before the
bytes that the token makes. So another server can go on: it makes the same reply from its beginning on, and leaves out
what the client has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from surefoot.api.answers import Piece, SentToken, sent_tokens
from surefoot.cache import DiskTier, PeerBlocks, PeerOffer
from surefoot.core import Request
from surefoot.fleet.frames import ForwardedRequest
from surefoot.fleet.replica.held_names import HeldNames
from surefoot.server.access.request_context import ReplyIdentity
from surefoot.server.access.shares import Caller


@dataclass(frozen=True)
class GatewayRate:
    """A rate that gateways keep: one of them has let the request in, and is told what it used."""

    tell: Callable[[float], None]

    def wait_s(self, amount: float) -> float:
        return 0.0

    def take(self, amount: float) -> None:
        self.tell(amount)


@dataclass(frozen=True)
class HeldPrompts:
    """The prompt cache on disk, and what gateways know of it."""

    tier: DiskTier
    peers: PeerBlocks  # other servers that may hold more
    names: HeldNames


class ReplicaRequest:
    """A forwarded request on this server."""

    def __init__(
        self, request: ForwardedRequest, tell: Callable[[list[SentToken]], None], held: HeldPrompts | None = None
    ) -> None:
        """tell: sends tokens to the gateway. held: None if this server keeps no prompts on disk."""
        self._request = request
        self._tell = tell
        self._held = held
        self._requests: Sequence[Request] = ()
        self._offers: list[PeerOffer] = []  # of blocks that another server holds
        self._num_known = len(request.sent)  # tokens that the gateway has
        self.num_requests = self.num_tokens = 0.0  # that this server would have charged
        self.return_reason = ""  # why another server must go on; empty: no need
        self.is_unmatched = False

    @property
    def identity(self) -> ReplyIdentity:
        return self._request.identity

    @property
    def is_patient(self) -> bool:
        return self._request.is_patient

    @property
    def is_charged(self) -> bool:
        """Whether the gateway has charged it to the caller's rates."""
        return self._request.is_charged

    def caller(self, caller: Caller) -> Caller:
        shared = replace(caller, weight=caller.weight * self._request.share)
        if not self.is_charged:
            return shared
        return replace(shared, requests=GatewayRate(self._count_requests), tokens=GatewayRate(self._count_tokens))

    def _count_requests(self, number: float) -> None:
        self.num_requests += number

    def _count_tokens(self, number: float) -> None:
        self.num_tokens += number

    def begin(self, requests: Sequence[Request]) -> Sequence[SentToken]:
        self._requests = requests
        self._offers = [offer for request in requests if (offer := self._offer(request)) is not None]
        if any(request.needs_every_token for request in requests):
            self._tell = lambda tokens: None  # it cannot go on from tokens: it is computed anew, and no token is told
            return ()
        return self._request.sent

    def _offer(self, request: Request) -> PeerOffer | None:
        """What another server of the fleet holds of the prompt, if the gateway knows of one."""
        hint = self._request.hint
        if hint is None or self._held is None or request.needs_every_token:
            return None
        prompt, namespace, num_public = request.prompt, request.namespace, request.num_public_tokens
        return self._held.tier.offer(hint.url, hint.num_tokens, prompt, namespace, num_public)

    def note(self, piece: Piece) -> None:
        """Tell the gateway the tokens that it does not have."""
        tokens = sent_tokens(piece)
        num_known = min(self._num_known, len(tokens))
        self._num_known -= num_known
        if tokens[num_known:]:
            self._tell(tokens[num_known:])

    def give_back(self, reason: str, is_unmatched: bool) -> None:
        """Let another server go on. What this server replies from now on is dropped."""
        self.return_reason, self.is_unmatched = reason, is_unmatched

    def end(self, num_generated: int) -> None:
        if self._held is None:
            return
        for offer in self._offers:
            self._held.peers.withdraw(offer)
        tier, names = self._held.tier, self._request.names
        if names and num_generated and len(self._requests) == 1:  # the gateway may learn that this server holds it
            (request,) = self._requests
            self._held.names.note(names, tier.digests(request.prompt, request.namespace, request.num_public_tokens))
