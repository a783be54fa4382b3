"""Interleaved timing: every round runs every case once, so that noise hits all of them alike.

Owns the clock, the rounds and the statistics. Knows nothing of what a case computes.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil

Clock = Callable[[], float]
Label = str | int

# Names of the two gauges that the figures are held against.
BANDWIDTH = "read_bandwidth"
INT8_PEAK = "int8_peak"

SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class Case:
    """Something to time. `run` makes `calls` calls and returns the seconds that they took together."""

    name: str
    kind: str
    run: Callable[[], float]
    calls: int = 1
    bytes: float = 0  # that one call must read
    operations: float = 0  # multiplications and additions of one call
    engine: str = "surefoot"
    labels: Mapping[str, Label] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One timing of a case: seconds of one call, and the rate that each gauge showed around it."""

    round: int
    seconds: float
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    case: Case
    samples: tuple[Sample, ...]

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
class Budget:
    """Rounds go on until the time is used up or `rounds` are done, one warm-up round not counted."""

    seconds: float
    rounds: int = 15


class EngineError(RuntimeError):
    """An engine can time no more cases."""


@dataclass
class _Timing:
    """A sample before its surroundings are known: the gauges were read as beat number `beat` before it."""

    round: int
    seconds: float
    beat: int


class Interleaver:
    """Runs cases round by round, with gauges (the machine's limits) read again and again between them.

    A gauge is a case whose rate stands for a limit at that moment: bytes per second if it moves bytes, else
    operations per second. A case that does not fit into what is left of the budget is passed over, and so are all
    cases of an engine that failed.
    """

    def __init__(
        self,
        gauges: Sequence[Case],
        budget: Budget,
        gauge_interval: float = 0.25,
        clock: Clock = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        report: Callable[[int, int, int], None] = lambda round, done, total: None,
    ) -> None:
        self._gauges, self._budget, self._interval = gauges, budget, gauge_interval
        self._clock, self._sleep, self._report = clock, sleep, report
        self._engine = "surefoot"
        self._beats: list[dict[str, Sample]] = []
        self._last_beat = float("-inf")
        self._timings: dict[str, list[_Timing]] = {}
        self.failures: dict[str, str] = {}  # by engine

    def run(self, cases: Sequence[Case]) -> dict[str, Measurement]:
        """Measurements of cases and gauges by name."""
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
        """Seconds the case may take: as last time, or at the latest pace (seconds per operation) of its like, or else
        at a third of the peak."""
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
        """Read every gauge once."""
        for gauge in self._gauges:
            self._settle(gauge)
        self._beats.append({gauge.name: Sample(number, gauge.run() / gauge.calls) for gauge in self._gauges})
        self._last_beat = self._clock()

    def _settle(self, case: Case) -> None:
        """Another engine's threads may spin on for a while after their last work: wait until they rest."""
        if case.engine != self._engine:
            self._sleep(SETTLE_SECONDS)
            self._engine = case.engine

    def _measurement(self, case: Case) -> Measurement:
        timings = self._timings[case.name]
        kept = timings[1:] or timings  # the first warmed up
        return Measurement(case, tuple(Sample(t.round, t.seconds, self._limits(t.beat)) for t in kept))

    def _limits(self, beat: int) -> dict[str, float]:
        """The mean of what each gauge showed before and after."""
        around = self._beats[beat : beat + 2]
        return {g.name: sum(_rate(g, b[g.name].seconds) for b in around) / len(around) for g in self._gauges}

    def _gauge(self, gauge: Case) -> Measurement:
        beats = self._beats[1:] or self._beats
        return Measurement(gauge, tuple(beat[gauge.name] for beat in beats))


def _rate(case: Case, seconds: float) -> float:
    return (case.bytes or case.operations) / seconds


def timed(body: Callable[[], object], clock: Clock = time.perf_counter) -> Callable[[], float]:
    """A case's `run` for something in this process."""

    def run() -> float:
        start = clock()
        body()
        return clock() - start

    return run


class Cursor:
    """How far a pool of memory has been walked through: a fraction of it, shared by all the cases that read it."""

    def __init__(self) -> None:
        self.at = Fraction(0)


class Rotation:
    """A case's `run` with several bodies over successive parts of a pool: each sample takes up where the last sample
    of any case left off, so that all of the pool passes before a part comes again."""

    def __init__(
        self, bodies: Sequence[Callable[[], object]], cursor: Cursor | None = None, clock: Clock = time.perf_counter
    ) -> None:
        self._bodies, self._clock = bodies, clock
        self._cursor = cursor or Cursor()

    def __call__(self) -> float:
        count = len(self._bodies)
        number = ceil(self._cursor.at * count) % count
        self._cursor.at = Fraction(number + 1, count) % 1
        return timed(self._bodies[number], self._clock)()


def shares_of_limit(measurements: Sequence[Measurement], gauge: str) -> list[float]:
    """Round by round: the time that the limit allows for one call of each case, over the time that they took.

    Bytes count against the bandwidth, operations against any other gauge, at the rates shown around each sample.
    """
    shares = []
    for samples in rounds_of(measurements):
        ideal = sum(_amount(m.case, gauge) / s.limits[gauge] for m, s in zip(measurements, samples, strict=True))
        shares.append(ideal / sum(sample.seconds for sample in samples))
    return shares


def share(measurements: Sequence[Measurement], gauge: str) -> float | None:
    """The cases' share of a limit, the median of the rounds."""
    shares = shares_of_limit(measurements, gauge)
    return statistics.median(shares) if shares else None


def ratios(over: Sequence[Measurement], under: Sequence[Measurement]) -> list[float]:
    """Round by round: the seconds of one call of each of the first, over those of the second."""
    split = len(over)
    return [_total(samples[:split]) / _total(samples[split:]) for samples in rounds_of([*over, *under])]


def rounds_of(measurements: Sequence[Measurement]) -> list[list[Sample]]:
    """The samples of rounds in which every one of the cases was timed."""
    by_round = [{sample.round: sample for sample in m.samples} for m in measurements]
    common = set.intersection(*(set(samples) for samples in by_round)) if by_round else set()
    return [[samples[number] for samples in by_round] for number in sorted(common)]


def roughness(times: Mapping[int, float]) -> float | None:
    """The largest t(r) / t(next larger r) of times by row count: at most 1 where more rows never take less time."""
    ordered = [times[rows] for rows in sorted(times)]
    return max((few / more for few, more in pairwise(ordered)), default=None)


def _total(samples: Sequence[Sample]) -> float:
    return sum(sample.seconds for sample in samples)


def _amount(case: Case, gauge: str) -> float:
    return case.bytes if gauge == BANDWIDTH else case.operations
