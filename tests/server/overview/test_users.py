"""Users' shares over a window of readings."""

from surefoot.server.metrics import PhaseTimes
from surefoot.server.overview.requests import NUM_READINGS, OpenRequest, UserShares


def request(user: str, phase: str) -> OpenRequest:
    return OpenRequest("1", user, "/v1/completions", phase, 1, 0, 0, 0, 0.0, PhaseTimes(0.0, 0.0, 0.0))


def test_shares_cover_the_window() -> None:
    shares = UserShares()
    assert [share.share for share in shares.read(0.0, {"a": 100.0}, (), {})] == [None]
    found = shares.read(10.0, {"a": 130.0, "b": 10.0}, (), {})
    speeds = [(share.user, share.tokens_per_second, share.share) for share in found]
    assert speeds == [("a", 3.0, 0.75), ("b", 1.0, 0.25)]
    for second in range(NUM_READINGS):
        found = shares.read(20.0 + second, {"a": 130.0, "b": 10.0}, (), {})
    assert [(share.tokens_per_second, share.share) for share in found] == [(0.0, None), (0.0, None)]


def test_open_requests_and_weights() -> None:
    requests = [request("a", "queue"), request("a", "decode"), request("b", "prefill")]
    found = UserShares().read(0.0, {"a": 1.0, "b": 1.0, "gone": 1.0}, requests, {"a": 1.0, "b": 3.0})
    assert [(share.user, share.running, share.waiting, share.fair_share) for share in found] == [
        ("a", 1, 1, 0.25), ("b", 1, 0, 0.75), ("gone", 0, 0, None),
    ]  # fmt: skip
