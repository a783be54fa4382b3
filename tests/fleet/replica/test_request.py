"""Callers of requests that a gateway forwards."""

from surefoot.fleet.frames import ForwardedRequest
from surefoot.fleet.replica.request import ReplicaRequest
from surefoot.server.access.rates import TokenBucket
from surefoot.server.access.request_context import ReplyIdentity
from surefoot.server.access.shares import Caller

CALLER = Caller("ann", weight=2.0, requests=TokenBucket(1.0), tokens=TokenBucket(1.0))


def forwarded(*, share: float = 1.0, is_charged: bool = False) -> ReplicaRequest:
    identity = ReplyIdentity("ab" * 16, 0, 0)
    message = ForwardedRequest("POST", "/", "", (), b"", identity, share=share, is_charged=is_charged)
    return ReplicaRequest(message, lambda tokens: None)


def test_a_request_that_no_gateway_charged_is_charged_here() -> None:
    caller = forwarded(share=0.25).caller(CALLER)
    assert caller.weight == 0.5
    assert (caller.requests, caller.tokens) == (CALLER.requests, CALLER.tokens)


def test_a_charged_request_tells_the_gateway_what_it_used() -> None:
    given = forwarded(is_charged=True)
    caller = given.caller(CALLER)
    assert caller.requests is not None
    assert caller.tokens is not None
    for _ in range(3):  # more than the key's own rates allow
        assert caller.requests.wait_s(1) == caller.tokens.wait_s(1) == 0
        caller.requests.take(1)
        caller.tokens.take(50)
    assert (given.num_requests, given.num_tokens) == (3, 150)
