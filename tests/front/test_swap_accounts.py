"""A user's swaps cost that user's time, not the others'. Time is simulated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.bench.harness.figures import percentile
from surefoot.front.residency import IN_USE_S, PAUSE, SwapAccounts
from surefoot.front.resident import ModelTraits
from tests.front.simulation import TICK_S, UNLOAD_S, Simulation

MAX_WAIT_S = 30.0
ANSWER_S = 0.25


def accounts(room_bytes: int) -> SwapAccounts:
    return SwapAccounts(dict.fromkeys("ABC", 10), room_bytes, MAX_WAIT_S)


def models(load_s: float, names: str = "ABC") -> tuple[ModelTraits, ...]:
    return tuple(ModelTraits(name, 10, load_s) for name in names)


def swap_s(load_s: float) -> float:
    return UNLOAD_S + load_s + ANSWER_S + 4 * TICK_S


# ---- shares of the memory ----


def test_user_of_one_model_has_it_in_their_share_however_many_users_there_are() -> None:
    made = accounts(10)
    for user in ("steady", "second", "third"):
        made.use(user, "A", 0)
        assert not made.exceeds_share(user, "A", 1)
    assert not made.exceeds_share("new", "B", 1)


def test_two_models_exceed_half_of_a_memory_of_two() -> None:
    made = accounts(20)
    made.use("swapper", "B", 0)
    assert not made.exceeds_share("swapper", "C", 1)  # alone
    made.use("steady", "A", 1)
    assert made.exceeds_share("swapper", "C", 2)
    assert not made.exceeds_share("swapper", "B", 2)  # it is the last that they used


def test_model_that_was_not_used_for_long_counts_no_more() -> None:
    made = accounts(10)
    made.use("swapper", "B", 0)
    late = IN_USE_S + MAX_WAIT_S
    assert made.exceeds_share("swapper", "C", late - 1)
    assert made.users_of("B", late - 1) == {"swapper"}
    assert not made.exceeds_share("swapper", "C", late)
    assert made.users_of("B", late) == set()


# ---- pauses ----


def test_pause_grows_with_the_seconds_and_the_users_up_to_the_longest_wait() -> None:
    for seconds, num_users, pause_s in ((1, 1, PAUSE), (2, 2, 4 * PAUSE), (100, 2, MAX_WAIT_S)):
        made = accounts(10)
        for number in range(num_users):
            made.use(f"user {number}", "A", 0)
        made.charge("user 0", seconds, 0)
        assert "user 0" not in made.unpaused(["user 0"], seconds + pause_s - 0.1)
        assert made.unpaused(["user 0", "user 1"], seconds + pause_s) == {"user 0", "user 1"}


# ---- swaps ----


@pytest.mark.parametrize("load_s", [2.0, 10.0])
@pytest.mark.parametrize(("pause_s", "p95_swaps"), [(0.3, 1), (2.0, 2)])
@pytest.mark.parametrize("pattern", ["AB", "BC"])
def test_steady_user_waits_for_the_swaps_of_another_at_most_there_and_back(
    load_s: float, pause_s: float, p95_swaps: int, pattern: str
) -> None:
    """One model fits. The swapping user's first models are within their share, as everybody's: they are left out."""
    begin, end = 120.0, 500.0
    simulation = Simulation(models(load_s), limit_bytes=10)
    waits = simulation.run_clients({"steady": "A", "swapper": pattern}, pause_s, end, begin)
    assert percentile(waits["steady"], 0.95) <= p95_swaps * swap_s(load_s)  # alone it is 0
    assert max(waits["steady"]) <= 2 * swap_s(load_s)
    turn_s = 2 * load_s + min(PAUSE * 2 * 2 * load_s, MAX_WAIT_S)
    assert sum(wait > 0 for wait in waits["steady"]) <= (end - begin) / turn_s + 1
    longest_turn_s = MAX_WAIT_S + 3 * swap_s(load_s)
    assert len(waits["swapper"]) >= (end - begin) / longest_turn_s - 1
    assert max(waits["swapper"]) <= longest_turn_s


def test_swapping_user_evicts_their_own_models_first() -> None:
    """Two models fit. The other user asks too rarely for their model to be of worth."""
    simulation = Simulation(models(2.0), limit_bytes=20)
    simulation.run_until_served(simulation.ask("A", user="steady"))
    for _ in range(10):
        simulation.run_clients({"swapper": "BC"}, 0.3, simulation.now + 20)
        request = simulation.ask("A", user="steady")
        assert request.begun == request.arrival
    assert simulation.num_loads > 20


def test_user_who_waits_for_many_models_at_once_gets_one_swap_a_turn() -> None:
    """All these requests become overdue at once. Between two of their swaps the other user is answered."""
    simulation = Simulation(models(5.0, "ABCDEF"), limit_bytes=10)
    simulation.run_clients({"steady": "A", "swapper": "A"}, 0.5, 20)
    many = [simulation.ask(model, ANSWER_S, "swapper") for model in "BCDEF"]
    waits = simulation.run_clients({"steady": "A"}, 0.5, 600)["steady"]
    assert max(waits) <= 2 * swap_s(5.0)
    assert sum(wait > 0 for wait in waits) <= len(many)
    assert all(request.ended is not None for request in many)


def test_nothing_is_delayed_without_another_user() -> None:
    alone = [
        Simulation(models(2.0), limit_bytes=10).run_clients({user: "ABAC"}, 0.0, 300)[user] for user in ("", "swapper")
    ]
    assert alone[0] == alone[1]
    assert max(alone[1][1:]) <= 2.0 + swap_s(2.0)


def test_users_of_one_model_each_wait_alike() -> None:
    """Neither exceeds their share, so neither is charged, whoever came first."""
    waits = Simulation(models(2.0), limit_bytes=10).run_clients({"first": "A", "second": "B"}, 0.3, 300)
    assert len(waits["first"]) == pytest.approx(len(waits["second"]), rel=0.1)


def test_two_swapping_users_wait_alike() -> None:
    waits = Simulation(models(2.0, "ABCD"), limit_bytes=10).run_clients({"first": "AB", "second": "CD"}, 0.3, 900)
    assert len(waits["first"]) == pytest.approx(len(waits["second"]), rel=0.3)


def test_a_swap_that_has_begun_ends_although_another_model_becomes_overdue() -> None:
    simulation = Simulation(models(2.0, "ABCD"), limit_bytes=20, max_wait_s=6.0)
    arrivals = (
        ("C", "z", 2.0, 0.02), ("B", "y", 1.73, 0.52), ("D", "z", 3.43, 2.0), ("A", "z", 0.0, 1.07),
        ("A", "y", 0.0, 1.75), ("B", "z", 3.74, 0.41), ("C", "z", 3.77, 1.88),
    )  # fmt: skip
    for model, user, seconds, pause_s in arrivals:
        simulation.ask(model, seconds, user)
        simulation.advance(pause_s)
    simulation.run_until_all_served()


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("ABCD"), st.sampled_from("xyz"), st.floats(0, 5.0), st.floats(0, 3)), max_size=40
    )
)
def test_every_request_is_served_a_longest_wait_for_each_model_at_the_latest(
    arrivals: list[tuple[str, str, float, float]],
) -> None:
    simulation = Simulation(models(2.0, "ABCD"), limit_bytes=20, max_wait_s=6.0)
    for model, user, seconds, pause_s in arrivals:
        simulation.ask(model, seconds, user)
        simulation.advance(pause_s)
    simulation.run_until_all_served()
    assert simulation.longest_wait_s() <= 4 * simulation.policy.longest_wait_s(5.0, UNLOAD_S + 3 * TICK_S)
