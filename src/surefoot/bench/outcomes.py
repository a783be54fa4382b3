"""What a load's outcomes say: shares of requests that were served well, waits and gaps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean

from surefoot.bench.load import Outcome, Run

TTFT_LIMIT_S = 2.0
GAP_LIMIT_S = 0.2
GAP_PERCENTILE = 0.95  # of one request's gaps, that must keep to the limit


@dataclass(frozen=True)
class Point:
    """A server under requests that arrive at some rate. Rates are of requests, a second.

    goodput: requests whose first text and gaps between texts keep to the limits. A request's gaps count by their 95th
    percentile; by their mean in goodput_by_mean, by the worst in goodput_by_worst.
    """

    engine: str
    rate: float
    num_requests: int
    num_failed: int
    seconds: float
    goodput: float
    goodput_by_mean: float
    goodput_by_worst: float
    tokens_per_second: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None
    error: str | None = None  # the first


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so large a share of all does not exceed."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else None


def point(engine: str, rate: float, run: Run, offered_s: float) -> Point:
    """offered_s: for how long requests came. What is late to end lengthens the time that counts."""
    seconds, done = max(run.seconds, offered_s), run.done
    ttfts, gaps = [one.ttft for one in done], [gap for one in done for gap in one.gaps]

    def goodput(gap_of: Callable[[list[float]], float | None]) -> float:
        return sum(_is_good(one, gap_of) for one in done) / seconds

    return Point(
        engine, rate, len(run.outcomes), len(run.errors), seconds,
        goodput=goodput(lambda found: percentile(found, GAP_PERCENTILE)),
        goodput_by_mean=goodput(lambda found: mean(found) if found else None),
        goodput_by_worst=goodput(lambda found: max(found, default=None)),
        tokens_per_second=sum(one.num_tokens for one in done) / seconds,
        ttft_p50_s=percentile(ttfts, 0.5), ttft_p95_s=percentile(ttfts, 0.95),
        gap_p50_s=percentile(gaps, 0.5), gap_p99_s=percentile(gaps, 0.99),
        error=next(iter(run.errors), None),
    )  # fmt: skip


def _is_good(one: Outcome, gap_of: Callable[[list[float]], float | None]) -> bool:
    gap = gap_of(one.gaps)
    return one.ttft <= TTFT_LIMIT_S and (gap is None or gap <= GAP_LIMIT_S)
