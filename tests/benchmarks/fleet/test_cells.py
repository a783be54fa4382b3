"""Users' home cells."""

from collections import Counter

from benchmarks.fleet.simulation.cells import home_cell

CELLS = [f"cell {number}" for number in range(10)]
USERS = [f"user {number}" for number in range(5000)]


def test_users_are_spread_evenly() -> None:
    sizes = Counter(home_cell(user, CELLS) for user in USERS)
    assert len(sizes) == len(CELLS)
    assert max(sizes.values()) < 1.2 * len(USERS) / len(CELLS)


def test_a_cell_that_goes_moves_its_own_users_alone() -> None:
    left = CELLS[:-1]
    for user in USERS[:500]:
        before = CELLS[home_cell(user, CELLS)]
        after = left[home_cell(user, left)]
        assert after == before or before == CELLS[-1]


def test_a_user_may_be_any_text() -> None:
    assert home_cell("\ud800 ", CELLS) in range(10)
