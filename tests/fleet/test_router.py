"""The router: least predicted time, by what replicas hold and have to do."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.fleet.prefix_index import PrefixIndex
from surefoot.fleet.router import NoReplica, ReplicaReport, ReplicaRouter

BLOCK = 16


def router(*reports: ReplicaReport) -> ReplicaRouter:
    made = ReplicaRouter(BLOCK)
    for number, report in enumerate(reports):
        assert made.join(f"r{number}") == number
        made.report(number, report)
    return made


def test_the_replica_that_holds_most_wins_if_nobody_waits() -> None:
    made = router(ReplicaReport(0, 5.0, [1]), ReplicaReport(0, 5.0, [1, 2, 3]), ReplicaReport(0, 5.0))
    choice = made.choose([1, 2, 3, 4], 70)
    assert (choice.replica, choice.num_cached, choice.predicted_ms) == (1, 48, (70 - 48) * 5.0)


def test_waiting_longer_than_computing_loses() -> None:
    busy = ReplicaReport(49, 5.0, [1, 2, 3])
    assert router(busy, ReplicaReport(0, 5.0)).choose([1, 2, 3], 50).replica == 1
    assert router(ReplicaReport(47, 5.0, [1, 2, 3]), ReplicaReport(0, 5.0)).choose([1, 2, 3], 50).replica == 0


def test_a_fast_replica_beats_a_slow_one_that_holds_part() -> None:
    made = router(ReplicaReport(0, 20.0, [1]), ReplicaReport(0, 5.0))
    assert made.choose([1, 2], 40).replica == 1


def test_a_hot_prefix_spreads_by_itself() -> None:
    """No replica is idle while another has requests to compute one after the other."""
    names = list(range(1, 51))
    made = router(ReplicaReport(0, 5.0, names), *(ReplicaReport(0, 5.0) for _ in range(3)))
    chosen = [made.choose(names, 50 * BLOCK + 100).replica for _ in range(40)]
    assert set(chosen) == {0, 1, 2, 3}
    assert chosen[:8] == [0] * 8  # 100 tokens each: nine of them take longer than the 800 of the prefix


def test_work_given_out_counts_until_a_report_has_it() -> None:
    made = router(ReplicaReport(0, 1.0), ReplicaReport(50, 1.0))
    assert [made.choose([], 30).replica for _ in range(3)] == [0, 0, 1]
    made.begin_report(0)
    assert made.choose([], 1).replica == 0  # after the question: the report does not have it
    made.report(0, ReplicaReport(60, 1.0))
    assert made.choose([], 30).predicted_ms == 60 + 1 + 30


def test_equals_are_chosen_alike_by_every_gateway() -> None:
    firsts = [router(*(ReplicaReport(0, 5.0) for _ in range(10))) for _ in range(2)]
    chosen = [[made.choose([name], 20).replica for name in range(1, 9)] for made in firsts]
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) > 3


def test_replicas_that_take_no_requests() -> None:
    made = router(ReplicaReport(0, 5.0, [1]), ReplicaReport(100, 5.0))
    assert made.choose([1], 20, excluded=[0]).replica == 1
    made.suspend(0)
    assert made.choose([1], 20).replica == 1
    made.report(0, ReplicaReport(0, 5.0))
    assert made.choose([1], 20).num_cached == 16
    made.forget(0)
    made.report(0, ReplicaReport(0, 5.0))
    assert made.choose([1], 20).num_cached == 0
    made.suspend(0)
    made.suspend(1)
    with pytest.raises(NoReplica):
        made.choose([1], 20)
    with pytest.raises(NoReplica):
        ReplicaRouter(BLOCK).choose([], 1)


def test_a_new_replica_waits_for_its_first_report() -> None:
    made = ReplicaRouter(BLOCK)
    made.join("new")
    with pytest.raises(NoReplica):
        made.choose([], 5)


def best_by_hand(
    held: list[set[int]], backlogs: list[int], speeds: list[float], names: list[int], tokens: int
) -> float:
    costs = []
    for blocks, backlog, speed in zip(held, backlogs, speeds, strict=True):
        depth = next((depth for depth, name in enumerate(names) if name not in blocks), len(names))
        costs.append((backlog + tokens - depth * BLOCK) * speed)
    return min(costs, default=math.inf)


@given(st.integers(0, 10**9))
def test_the_least_cost_is_found(seed: int) -> None:
    """Against every replica by hand. Replicas hold prefixes of conversations that share beginnings."""
    rng = random.Random(seed)
    size = rng.randint(1, 8)
    made, held, backlogs, speeds = ReplicaRouter(BLOCK), [set[int]() for _ in range(size)], [], []
    texts = [[1, 2, 3, *range(10 * text, 10 * text + rng.randint(0, 9))] for text in range(1, 6)]
    for number in range(size):
        made.join(f"{number}")
        for text in rng.sample(texts, rng.randint(0, 5)):
            held[number].update(text[: rng.randint(0, len(text))])
        backlogs.append(rng.randint(0, 300))
        speeds.append(rng.choice([1.0, 2.0, 4.0]))
        made.report(number, ReplicaReport(backlogs[-1], speeds[-1], sorted(held[number])))
    for text in texts:
        names = text[: rng.randint(0, len(text))]
        tokens = len(names) * BLOCK + rng.randint(1, 40)
        wanted = best_by_hand(held, backlogs, speeds, names, tokens)
        fresh = made.choose(names, tokens)
        assert fresh.predicted_ms == wanted
        made.begin_report(fresh.replica)  # so that the next choice is made from the same state
        made.report(fresh.replica, ReplicaReport(backlogs[fresh.replica], speeds[fresh.replica]))


def test_the_index_forgets_what_nobody_holds() -> None:
    index = PrefixIndex()
    index.add(0, [1, 2, 3])
    index.add(1, [1, 2])
    index.add(1, [1, 2])
    assert [(depth, sorted(held.tolist())) for depth, held in index.depths([1, 2, 3, 4])] == [(2, [0, 1]), (3, [0])]
    index.remove(0, [3, 2, 9])
    assert [(depth, held.tolist()) for depth, held in index.depths([1, 2, 3])] == [(1, [0, 1]), (2, [1])]
    index.remove_replica(1)
    assert len(index) == 1
    index.remove_replica(0)
    assert len(index) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "remove_replica"]),
            st.integers(0, 2),
            st.lists(st.integers(0, 9), max_size=6),
        ),
        max_size=40,
    )
)
def test_the_index_knows_every_holder(changes: list[tuple[str, int, list[int]]]) -> None:
    index, held = PrefixIndex(), {replica: set[int]() for replica in range(3)}
    for change, replica, names in changes:
        match change:
            case "add":
                index.add(replica, names)
                held[replica].update(names)
            case "remove":
                index.remove(replica, names)
                held[replica].difference_update(names)
            case _:
                index.remove_replica(replica)
                held[replica].clear()
        for name in range(10):
            holders = {int(number) for _, numbers in index.depths([name]) for number in numbers}
            assert holders == {replica for replica, names in held.items() if name in names}
    assert len(index) == len(set[int]().union(*held.values()))


def test_fetching_counts_where_it_is_quicker_than_computing() -> None:
    names = list(range(1, 51))
    busy = ReplicaReport(400, 5.0, names)
    far, near = ReplicaReport(0, 5.0, names[:10]), ReplicaReport(0, 5.0, fetch_ms=20.0, fetch_token_ms=0.1)
    choice = router(busy, far, near).choose(names, 810)
    assert (choice.replica, choice.holder, choice.num_held, choice.num_cached) == (2, 0, 800, 0)
    assert choice.predicted_ms == pytest.approx(20 + 800 * 0.1 + 10 * 5)
    slow = ReplicaReport(0, 5.0, fetch_ms=20.0, fetch_token_ms=6.0)
    choice = router(busy, far, slow).choose(names, 810)
    assert (choice.replica, choice.holder) == (0, None)  # 2,050 ms: waiting is quickest
    made = router(busy, near)
    assert made.choose(names, 810, excluded=[0]).holder is None  # it has failed on this request
    made.suspend(0)
    assert made.choose(names, 810).holder is None


def test_a_hot_prefix_is_fetched_once_waiting_takes_longer() -> None:
    names = list(range(1, 51))
    idle = ReplicaReport(0, 5.0, fetch_ms=10.0, fetch_token_ms=0.1)
    made = router(ReplicaReport(0, 5.0, names), idle)
    chosen = [made.choose(names, 50 * BLOCK + 20) for _ in range(4)]
    assert [choice.replica for choice in chosen[:2]] == [0, 1]
    assert [choice.holder for choice in chosen[:2]] == [None, 0]
