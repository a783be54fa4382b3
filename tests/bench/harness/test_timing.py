"""The arithmetic of interleaved timing, on a fake clock that only cases advance."""

from collections.abc import Callable

import pytest

from surefoot.bench.harness.timing import (
    BANDWIDTH,
    INT8_PEAK,
    Case,
    EngineError,
    Interleaver,
    Measurement,
    TimeBudget,
    TimedSample,
    ratios,
    share,
    shares_of_limit,
)


class FakeMachine:
    """Makes cases with given durations, and records which cases ran."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def takes(self, name: str, *seconds: float) -> Callable[[], float]:
        """A case's `run`: each call takes the next duration, and later calls the last duration."""
        times = list(seconds)

        def run() -> float:
            self.ran.append(name)
            duration = times.pop(0) if len(times) > 1 else times[0]
            self.now += duration
            return duration

        return run

    def case(self, name: str, *seconds: float, calls: int = 1, operations: float = 0, engine: str = "surefoot") -> Case:
        return Case(name, "kind", self.takes(name, *seconds), calls, operations=operations, engine=engine)

    def gauge(self, *seconds: float) -> Case:
        return Case(BANDWIDTH, "limit", self.takes(BANDWIDTH, *seconds), bytes=100)

    def interleaver(self, *gauges: Case, seconds: float = 1e9, rounds: int = 3, interval: float = 1e9) -> Interleaver:
        return Interleaver(gauges, TimeBudget(seconds, rounds), interval, self.clock, self.sleep)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


def test_every_round_runs_every_case_once(machine: FakeMachine) -> None:
    machine.interleaver(rounds=2).run([machine.case("a", 1), machine.case("b", 1)])
    assert machine.ran == ["a", "b"] * 3  # the warm-up and two rounds


def test_warm_up_is_excluded_and_times_are_per_call(machine: FakeMachine) -> None:
    measured = machine.interleaver().run([machine.case("a", 50, 4, 8, 6, calls=2)])["a"]
    assert measured.seconds == [2, 4, 3]
    assert (measured.best, measured.median) == (2, 3)


def test_a_case_timed_only_once_keeps_its_warm_up(machine: FakeMachine) -> None:
    measured = machine.interleaver(seconds=10).run([machine.case("a", 7)])["a"]
    assert measured.seconds == [7]


def test_names_must_differ(machine: FakeMachine) -> None:
    with pytest.raises(ValueError, match="same name"):
        machine.interleaver().run([machine.case("a", 1), machine.case("a", 1)])


def test_rounds_end_with_the_budget(machine: FakeMachine) -> None:
    measured = machine.interleaver(seconds=10, rounds=100).run([machine.case("a", 1), machine.case("b", 2)])
    assert machine.now <= 10
    assert [len(m.samples) for m in measured.values()] == [3, 2]  # a fits once more, b does not


def test_a_case_that_cannot_fit_is_skipped(machine: FakeMachine) -> None:
    few, many = machine.case("few", 1, operations=10), machine.case("many", 1000, operations=10_000)
    measured = machine.interleaver(seconds=20).run([few, many, machine.case("other", 1)])
    assert "many" not in machine.ran  # at the pace of `few` it would take 1000 seconds
    assert measured["many"].samples == ()
    assert measured["other"].samples


def test_without_a_pace_a_third_of_the_peak_is_expected(machine: FakeMachine) -> None:
    peak = Case(INT8_PEAK, "limit", machine.takes(INT8_PEAK, 0.01), operations=1)
    first = machine.case("first", 1)
    cases = [first, machine.case("fits", 1, operations=500), machine.case("not", 1, operations=5000)]
    machine.interleaver(peak, seconds=60, rounds=0).run([cases[0], cases[2], cases[1]])
    assert [name for name in machine.ran if name != INT8_PEAK] == ["first", "fits"]


def test_gauges_are_read_between_cases(machine: FakeMachine) -> None:
    gauge = machine.gauge(1, 2, 4)
    measured = machine.interleaver(gauge, rounds=0, interval=5).run([machine.case("a", 5), machine.case("b", 5)])
    assert machine.ran == [BANDWIDTH, "a", BANDWIDTH, "b", BANDWIDTH]
    assert measured["a"].samples[0].limits == {BANDWIDTH: (100 / 1 + 100 / 2) / 2}
    assert measured["b"].samples[0].limits == {BANDWIDTH: (100 / 2 + 100 / 4) / 2}
    assert measured[BANDWIDTH].seconds == [2, 4]


def test_threads_of_another_engine_get_time_to_stop_spinning(machine: FakeMachine) -> None:
    cases = [machine.case("a", 1), machine.case("b", 1), machine.case("c", 1, engine="peer")]
    machine.interleaver(rounds=1).run(cases)
    assert len(machine.slept) == 3  # to the peer, back to us, to the peer


def test_an_engine_that_fails_does_not_stop_the_others(machine: FakeMachine) -> None:
    def fail() -> float:
        raise EngineError("it died")

    interleaver = machine.interleaver(rounds=1)
    cases = [Case("x", "kind", fail, engine="peer"), machine.case("y", 1, engine="peer"), machine.case("a", 1)]
    measured = interleaver.run(cases)
    assert interleaver.failures == {"peer": "it died"}
    assert machine.ran == ["a", "a"]
    assert measured["y"].samples == ()


def measurement(name: str, *samples: TimedSample, nbytes: float = 0, operations: float = 0) -> Measurement:
    return Measurement(Case(name, "kind", lambda: 0.0, bytes=nbytes, operations=operations), samples)


def test_share_of_a_limit_is_ideal_time_over_time_taken() -> None:
    slow = TimedSample(1, 4.0, {BANDWIDTH: 10, INT8_PEAK: 1000})
    fast = TimedSample(2, 2.0, {BANDWIDTH: 50, INT8_PEAK: 1000})
    first = measurement("first", slow, fast, nbytes=20, operations=500)
    assert shares_of_limit([first], BANDWIDTH) == [20 / 10 / 4, 20 / 50 / 2]
    assert shares_of_limit([first], INT8_PEAK) == [0.5 / 4, 0.5 / 2]
    assert share([first], BANDWIDTH) == pytest.approx((0.5 + 0.2) / 2)
    second = measurement("second", TimedSample(2, 8.0, {BANDWIDTH: 10, INT8_PEAK: 1}), nbytes=40)
    assert shares_of_limit([first, second], BANDWIDTH) == [(20 / 50 + 40 / 10) / (2 + 8)]  # only round 2 has both


def test_ratios_pair_samples_of_one_round() -> None:
    over = measurement("over", TimedSample(1, 6.0), TimedSample(2, 10.0), TimedSample(3, 1.0))
    under = measurement("under", TimedSample(1, 3.0), TimedSample(2, 2.0))
    assert ratios([over], [under]) == [2.0, 5.0]
    assert ratios([over, under], [under]) == [3.0, 6.0]
    assert ratios([over], [measurement("never")]) == []
