"""The caller of a request that a fleet's gateway hands over.

The gateway has charged it to the caller's rates, and knows which part of the user's requests is at this server.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from surefoot.server.access.keys import Caller
from surefoot.server.handover import Handover


@dataclass(frozen=True)
class GatewayRate:
    """A rate that gateways keep: one of them has let the request in, and is told what it used."""

    tell: Callable[[float], None]

    def wait_s(self, amount: float) -> float:
        return 0.0

    def take(self, amount: float) -> None:
        self.tell(amount)


def handed_caller(caller: Caller, handover: Handover | None) -> Caller:
    """handover: None if the client itself sent the request."""
    if handover is None:
        return caller
    shared = replace(caller, weight=caller.weight * handover.share)
    if not handover.is_charged:
        return shared
    requests, tokens = GatewayRate(handover.count_requests), GatewayRate(handover.count_tokens)
    return replace(shared, requests=requests, tokens=tokens)
