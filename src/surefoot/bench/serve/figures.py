"""The figures of `surefoot bench serve`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from surefoot.bench.harness.figures import Measurements, MissingError, Question, Target, select
from surefoot.bench.peers.serving import PEERS
from surefoot.bench.serve.fairness import Fairness
from surefoot.bench.serve.goodput import LoadPoint


@dataclass(frozen=True)
class Served:
    """All measurements of the benchmark."""

    measurements: Measurements
    points: Sequence[LoadPoint]  # one per engine and arrival rate
    fairness: Fairness | None  # None: not part of the run
    ready_s: Sequence[float]  # seconds until the server is ready, one per start
    absent: Mapping[str, str]  # reasons, by peer that did not take part

    def points_of(self, engine: str) -> list[LoadPoint]:
        if reason := self.absent.get(engine):
            raise MissingError(reason)
        return [point for point in self.points if point.engine == engine]

    def goodputs(self, engine: str) -> list[float]:
        """The largest goodput over all arrival rates, in each round."""
        best: dict[int, float] = {}
        for point in self.points_of(engine):
            best[point.turn] = max(point.goodput, best.get(point.turn, 0.0))
        return [*best.values()]

    def best(self) -> LoadPoint:
        """Our point with the largest goodput."""
        return max(self.points_of("surefoot"), key=lambda point: point.goodput)


def serve_questions(served: Served) -> Iterator[Question]:
    def speed() -> list[float]:
        (streams,) = select(served.measurements, "streams")
        return [float(streams.case.labels["tokens"]) / seconds for seconds in streams.seconds]

    yield Question("streams_tps", "output tokens/s over HTTP at 32 streams", None, speed)
    yield from _arrival_questions(served)
    meaning = (
        "one user's first text beside another's 50 requests, less a step, over an idle server's (95th percentiles)"
    )
    yield Question("single_user_ttft_ratio", meaning, Target(2.0, at_least=False), partial(_fairness, served))
    limit = Target(2.0, at_least=False)
    yield Question("ready_s", "from start to ready, s", limit, lambda: served.ready_s)
    for name in PEERS:
        yield Question(f"goodput_{name}", f"goodput of {name}", None, partial(served.goodputs, name))
        yield Question(f"goodput_vs_{name}", f"goodput over {name}'s", Target(2.0), partial(_against, served, name))


def _arrival_questions(served: Served) -> Iterator[Question]:
    def in_ms(seconds: float | None) -> float:
        if seconds is None:
            raise MissingError("no request was answered")
        return 1000 * seconds

    def ttft() -> float:
        return in_ms(served.best().ttft_p95_s)

    def gap() -> float:
        return in_ms(served.best().gap_p99_s)

    meaning = "requests/s with first text within 2 s and gaps within 200 ms, at the best rate"
    yield Question("goodput", meaning, None, lambda: served.goodputs("surefoot"))
    yield Question("ttft_p95_ms", "until the first text at that rate, 95th percentile, ms", None, ttft)
    yield Question("gap_p99_ms", "between texts at that rate, 99th percentile, ms", None, gap)


def _fairness(served: Served) -> float:
    if served.fairness is None:
        raise MissingError("not part of this run")
    return served.fairness.ratio


def _against(served: Served, name: str) -> list[float]:
    theirs = served.goodputs(name)
    if not all(theirs):
        raise MissingError(f"{name} answered no request within the limits at any rate, at least in one round")
    return [our / their for our, their in zip(served.goodputs("surefoot"), theirs, strict=True)]
