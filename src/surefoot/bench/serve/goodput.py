"""Goodput, time to first text and gaps of a server under random arrivals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean

from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.http_load import LoadResult, Outcome

TTFT_LIMIT_S = 2.0
PATIENT_TTFT_LIMITS_S = (5.0, 10.0)  # of users who wait longer for a larger model
GAP_LIMIT_S = 0.2
GAP_PERCENTILE = 0.95  # this percentile of a request's gaps must be within the limit


@dataclass(frozen=True)
class LoadPoint:
    """Results of a server at one arrival rate. Rates are in requests per second.

    Goodput counts the requests whose time to first text and whose gaps between texts are within the limits.
    """

    engine: str
    rate: float  # of arrivals
    num_requests: int
    num_failed: int
    seconds: float
    goodput: float  # judged by the 95th percentile of each request's gaps
    goodput_by_mean: float  # judged by the mean of each request's gaps
    goodput_by_worst: float  # judged by the longest of each request's gaps
    tokens_per_second: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None
    error: str | None = None  # of the first request that failed
    turn: int = 0  # the round
    goodput_by_ttft: Mapping[str, float] = field(default_factory=dict)  # with longer limits for the first text


def point(engine: str, rate: float, run: LoadResult, offered_s: float, turn: int = 0) -> LoadPoint:
    """The results of a load. offered_s: seconds during which requests arrived. Rates are over the longer of this time
    and the time until the last request ended."""
    seconds, done = max(run.seconds, offered_s), run.done
    ttfts, gaps = [outcome.ttft for outcome in done], [gap for outcome in done for gap in outcome.gaps]

    def goodput(gap_of: Callable[[list[float]], float | None], ttft_limit_s: float = TTFT_LIMIT_S) -> float:
        return sum(_is_good(outcome, gap_of, ttft_limit_s) for outcome in done) / seconds

    def by_percentile(gaps: list[float]) -> float | None:
        return percentile(gaps, GAP_PERCENTILE)

    return LoadPoint(
        engine, rate, len(run.outcomes), len(run.errors), seconds,
        goodput=goodput(by_percentile),
        goodput_by_mean=goodput(lambda gaps: mean(gaps) if gaps else None),
        goodput_by_worst=goodput(lambda gaps: max(gaps, default=None)),
        tokens_per_second=sum(outcome.num_tokens for outcome in done) / seconds,
        ttft_p50_s=percentile(ttfts, 0.5), ttft_p95_s=percentile(ttfts, 0.95),
        gap_p50_s=percentile(gaps, 0.5), gap_p99_s=percentile(gaps, 0.99),
        error=next(iter(run.errors), None), turn=turn,
        goodput_by_ttft={f"{limit_s:g}": goodput(by_percentile, limit_s) for limit_s in PATIENT_TTFT_LIMITS_S},
    )  # fmt: skip


def _is_good(outcome: Outcome, gap_of: Callable[[list[float]], float | None], ttft_limit_s: float) -> bool:
    gap = gap_of(outcome.gaps)
    return outcome.ttft <= ttft_limit_s and (gap is None or gap <= GAP_LIMIT_S)
