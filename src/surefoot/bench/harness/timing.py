"""Interleaved timing: every round runs every case once, so that noise hits all cases alike.

Owns the clock, the rounds and the statistics. Does not know what a case computes.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Clock = Callable[[], float]
Label = str | int

# Names of the two gauges that figures are compared with.
BANDWIDTH = "read_bandwidth"
INT8_PEAK = "int8_peak"

SETTLE_SECONDS = 0.02  # wait between engines, for the threads of the last one to stop spinning


@dataclass(frozen=True)
class Case:
    """A workload to time."""

    name: str
    kind: str
    run: Callable[[], float]  # makes `calls` calls and returns their total seconds
    calls: int = 1
    bytes: float = 0  # bytes that a call must read
    operations: float = 0  # multiplications and additions of a call
    engine: str = "surefoot"  # or a peer's name
    labels: Mapping[str, Label] = field(default_factory=dict)  # figures select cases by labels


@dataclass(frozen=True)
class TimedSample:
    """One timing of a case."""

    round: int
    seconds: float  # per call
    limits: Mapping[str, float] = field(default_factory=dict)  # rate of each gauge around the time of the sample


@dataclass(frozen=True)
class Measurement:
    """All samples of a case, without its warm-up."""

    case: Case
    samples: tuple[TimedSample, ...]

    @property
    def seconds(self) -> list[float]:
        return [sample.seconds for sample in self.samples]

    @property
    def best(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.samples else None


@dataclass(frozen=True)
class TimeBudget:
    """Limits of an Interleaver's run: it stops at the first that is reached."""

    seconds: float
    rounds: int = 15  # after the warm-up round


class EngineError(RuntimeError):
    """An engine failed and can time no more cases."""


@dataclass
class _Timing:
    """A sample without its limits, which depend on the next gauge reading."""

    round: int
    seconds: float  # per call
    beat: int  # index of the gauge reading before it


class Interleaver:
    """Runs cases round by round, and reads the gauges (the machine's limits) between them.

    A gauge is a case whose rate is a limit at that moment: bytes per second if it moves bytes, else operations per
    second. Cases that do not fit into the remaining budget are skipped, as are all cases of an engine that failed.
    """

    def __init__(
        self,
        gauges: Sequence[Case],
        budget: TimeBudget,
        gauge_interval: float = 0.25,
        clock: Clock = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        report: Callable[[int, int, int], None] = lambda round, done, total: None,
    ) -> None:
        self._gauges, self._budget, self._interval = gauges, budget, gauge_interval
        self._clock, self._sleep, self._report = clock, sleep, report
        self._engine = "surefoot"
        self._beats: list[dict[str, TimedSample]] = []
        self._last_beat = float("-inf")
        self._timings: dict[str, list[_Timing]] = {}
        self.failures: dict[str, str] = {}  # error messages by engine

    def run(self, cases: Sequence[Case]) -> dict[str, Measurement]:
        """Runs the cases. Returns measurements of cases and gauges by name."""
        deadline = self._clock() + self._budget.seconds
        self._timings = {case.name: [] for case in cases}
        if len(self._timings) != len(cases):
            raise ValueError("two cases have the same name")
        paces: dict[tuple[str, str], float] = {}
        for number in range(self._budget.rounds + 1):
            for done, case in enumerate(cases):
                self._report(number, done, len(cases))
                fits = self._clock() + self._estimate(case, paces) <= deadline
                if fits and case.engine not in self.failures:
                    self._sample(case, number, paces)
            if self._clock() >= deadline:
                break
        self._beat(number)
        return {case.name: self._measurement(case) for case in cases} | {g.name: self._gauge(g) for g in self._gauges}

    def _estimate(self, case: Case, paces: dict[tuple[str, str], float]) -> float:
        """Expected seconds of the case: its last duration, or else estimated from its operations at the latest pace
        (seconds per operation) of cases of its kind, or else at a third of the peak."""
        timings = self._timings[case.name]
        if timings:
            return timings[-1].seconds * case.calls
        peak = self._beats[-1].get(INT8_PEAK) if self._beats else None
        pace = paces.get((case.kind, case.engine), 3 * peak.seconds if peak else 0.0)
        return pace * case.operations * case.calls

    def _sample(self, case: Case, number: int, paces: dict[tuple[str, str], float]) -> None:
        if self._clock() - self._last_beat >= self._interval:
            self._beat(number)
        self._settle(case)
        try:
            seconds = case.run() / case.calls
        except EngineError as error:
            self.failures[case.engine] = str(error)
            return
        self._timings[case.name].append(_Timing(number, seconds, len(self._beats) - 1))
        if case.operations:
            paces[case.kind, case.engine] = seconds / case.operations

    def _beat(self, number: int) -> None:
        """Reads every gauge once."""
        for gauge in self._gauges:
            self._settle(gauge)
        self._beats.append({gauge.name: TimedSample(number, gauge.run() / gauge.calls) for gauge in self._gauges})
        self._last_beat = self._clock()

    def _settle(self, case: Case) -> None:
        """Waits until the threads of the engine that ran last stop spinning."""
        if case.engine != self._engine:
            self._sleep(SETTLE_SECONDS)
            self._engine = case.engine

    def _measurement(self, case: Case) -> Measurement:
        timings = self._timings[case.name]
        kept = timings[1:] or timings  # the first is the warm-up
        return Measurement(case, tuple(TimedSample(t.round, t.seconds, self._limits(t.beat)) for t in kept))

    def _limits(self, beat: int) -> dict[str, float]:
        """The mean of each gauge's readings before and after a sample."""
        around = self._beats[beat : beat + 2]
        return {g.name: sum(_rate(g, b[g.name].seconds) for b in around) / len(around) for g in self._gauges}

    def _gauge(self, gauge: Case) -> Measurement:
        beats = self._beats[1:] or self._beats
        return Measurement(gauge, tuple(beat[gauge.name] for beat in beats))


def _rate(case: Case, seconds: float) -> float:
    return (case.bytes or case.operations) / seconds


def timed(body: Callable[[], object], clock: Clock = time.perf_counter) -> Callable[[], float]:
    """A case's `run` that times a call in this process."""

    def run() -> float:
        start = clock()
        body()
        return clock() - start

    return run


def shares_of_limit(measurements: Sequence[Measurement], gauge: str) -> list[float]:
    """For each round: the shortest time that the limit allows for one call of each case, over the measured time.

    Bytes count against the bandwidth, operations against other gauges, at the rates measured around each sample.
    """
    shares = []
    for samples in rounds_of(measurements):
        ideal = sum(_amount(m.case, gauge) / s.limits[gauge] for m, s in zip(measurements, samples, strict=True))
        shares.append(ideal / sum(sample.seconds for sample in samples))
    return shares


def share(measurements: Sequence[Measurement], gauge: str) -> float | None:
    """The cases' share of a limit: the median over rounds."""
    shares = shares_of_limit(measurements, gauge)
    return statistics.median(shares) if shares else None


def ratios(over: Sequence[Measurement], under: Sequence[Measurement]) -> list[float]:
    """For each round: seconds of one call of each case in `over`, divided by the same for `under`."""
    split = len(over)
    return [_total(samples[:split]) / _total(samples[split:]) for samples in rounds_of([*over, *under])]


def rounds_of(measurements: Sequence[Measurement]) -> list[list[TimedSample]]:
    """The samples of each round in which all of these cases were timed."""
    by_round = [{sample.round: sample for sample in m.samples} for m in measurements]
    common = set.intersection(*(set(samples) for samples in by_round)) if by_round else set()
    return [[samples[number] for samples in by_round] for number in sorted(common)]


def _total(samples: Sequence[TimedSample]) -> float:
    return sum(sample.seconds for sample in samples)


def _amount(case: Case, gauge: str) -> float:
    return case.bytes if gauge == BANDWIDTH else case.operations
