"""A user's parts over all replicas."""

import pytest

from surefoot.fleet.members import UserSpread


def test_one_request_is_all_of_it() -> None:
    spread = UserSpread()
    assert spread.enter("ann", 3) == 1.0
    assert len(spread) == 1
    spread.leave("ann", 3)
    assert len(spread) == 0


def test_the_parts_of_a_flood_add_up_to_one() -> None:
    spread, shares = UserSpread(), dict[int, float]()
    places = [*range(10)] * 50
    for replica in places:
        shares[replica] = spread.enter("flood", replica)
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    assert spread.enter("ann", 0) == 1.0  # another user's requests do not count
    for replica in places:
        spread.leave("flood", replica)
    spread.leave("ann", 0)
    assert len(spread) == 0
