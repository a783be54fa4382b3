"""Rotation over a pool of memory, on a fake clock that only cases advance."""

from collections.abc import Callable

from benchmarks.ops.rotation import Cursor, Rotation


class FakeMachine:
    """Makes bodies of cases that take 2 seconds, and records which of them ran."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def clock(self) -> float:
        return self.now

    def runs(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.ran.append(name)
            self.now += 2

        return run


def test_rotation_starts_over() -> None:
    machine = FakeMachine()
    rotation = Rotation([machine.runs(name) for name in "abc"], clock=machine.clock)
    assert [rotation() for _ in range(5)] == [2] * 5
    assert machine.ran == ["a", "b", "c", "a", "b"]


def test_cases_over_one_pool_continue_where_the_last_stopped() -> None:
    machine, cursor = FakeMachine(), Cursor()
    thirds = Rotation([machine.runs(f"third {i}") for i in range(3)], cursor, machine.clock)
    halves = Rotation([machine.runs(f"half {i}") for i in range(2)], cursor, machine.clock)
    for rotation in (thirds, halves, thirds, thirds, halves, thirds):
        rotation()
    assert machine.ran == ["third 0", "half 1", "third 0", "third 1", "half 0", "third 2"]
