"""Callers of requests that a gateway hands over."""

from surefoot.server.access.handed_caller import handed_caller
from surefoot.server.access.keys import Caller
from surefoot.server.access.rates import TokenBucket
from surefoot.server.handover import Handover, ReplyIdentity

CALLER = Caller("ann", weight=2.0, requests=TokenBucket(1.0), tokens=TokenBucket(1.0))


def handover(**more: float | bool) -> Handover:
    return Handover(ReplyIdentity("ab" * 16, 0, 0), (), lambda tokens: None, **more)  # type: ignore[arg-type]


def test_a_clients_own_request_is_charged_here() -> None:
    assert handed_caller(CALLER, None) is CALLER


def test_a_request_that_no_gateway_charged_is_charged_here() -> None:
    caller = handed_caller(CALLER, handover(share=0.25))
    assert caller.weight == 0.5
    assert (caller.requests, caller.tokens) == (CALLER.requests, CALLER.tokens)


def test_a_charged_request_tells_the_gateway_what_it_used() -> None:
    given = handover(is_charged=True)
    caller = handed_caller(CALLER, given)
    assert caller.requests is not None
    assert caller.tokens is not None
    for _ in range(3):  # more than the key's own rates allow
        assert caller.requests.wait_s(1) == caller.tokens.wait_s(1) == 0
        caller.requests.take(1)
        caller.tokens.take(50)
    assert (given.num_requests, given.num_tokens) == (3, 150)
