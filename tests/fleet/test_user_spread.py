"""A user's parts over all replicas."""

from contextlib import ExitStack

import pytest

from surefoot.fleet.user_spread import UserSpread


def test_one_request_is_all_of_it() -> None:
    spread = UserSpread()
    with spread.request("ann", 3) as share:
        assert share == 1.0
        assert len(spread) == 1
    assert len(spread) == 0


def test_the_parts_of_a_flood_add_up_to_one() -> None:
    spread, shares = UserSpread(), dict[int, float]()
    with ExitStack() as stack:
        for _ in range(50):
            for replica in range(10):
                shares[replica] = stack.enter_context(spread.request("flood", replica))
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
        with spread.request("ann", 0) as share:
            assert share == 1.0  # another user's requests do not count
    assert len(spread) == 0
