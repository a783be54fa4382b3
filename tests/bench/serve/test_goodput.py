from surefoot.bench.harness.http_load import LoadResult, Outcome
from surefoot.bench.serve.goodput import point


def test_goodput_counts_requests_within_the_limits() -> None:
    def outcome(ttft: float, *gaps: float, error: str | None = None) -> Outcome:
        times = [ttft]
        for gap in gaps:
            times.append(times[-1] + gap)
        return Outcome(0.0, tuple(times), times[-1], len(times), error)

    fast, late = outcome(0.5, 0.1, 0.1), outcome(2.1, 0.1)
    jerky = outcome(0.5, *[0.05] * 10, 0.9, *[0.05] * 10)  # one long gap of 21
    slow, failed = outcome(0.5, 0.3, 0.3), outcome(0.1, 0.1, error="status 500")
    run = LoadResult([fast, late, jerky, slow, failed], seconds=8.0)
    result = point("surefoot", 1.0, run, offered_s=10.0)
    assert (result.goodput, result.goodput_by_mean, result.goodput_by_worst) == (0.2, 0.2, 0.1)
    assert (result.num_requests, result.num_failed, result.seconds) == (5, 1, 10.0)
    assert result.tokens_per_second == (3 + 2 + 22 + 3) / 10
    assert result.ttft_p95_s == 2.1
    assert result.error == "status 500"
