"""Where a request's time went, and the slowest of the last requests."""

from dataclasses import replace

from surefoot.api.answers import RequestOutput, Timings
from surefoot.core import Phase, SampleKey, SampleStatus
from surefoot.engine import Times, Usage
from surefoot.server.metrics import NUM_RECENT, NUM_SLOWEST, EndedRequest, PhaseTimes, RecentRequests
from surefoot.server.overview.requests import furthest

ENDED = EndedRequest("1", "", "/v1/completions", "whole", 0.0, 1, 0, 1, 0.0, PhaseTimes(0.0, 0.0, 0.0))


def output(queued: float, first: float, total: float) -> RequestOutput:
    return RequestOutput("1", None, (1,), (), Usage(1, 1), Timings(queued, first, total, None), 0)


def test_phases_so_far() -> None:
    assert PhaseTimes.so_far(Times(10.0), 13.0) == PhaseTimes(3.0, 0.0, 0.0)
    assert PhaseTimes.so_far(Times(10.0, started=11.0), 13.0) == PhaseTimes(1.0, 2.0, 0.0)
    assert PhaseTimes.so_far(Times(10.0, started=11.0, first_token=12.5), 13.0) == PhaseTimes(1.0, 1.5, 0.5)


def test_phases_of_the_answer_that_took_longest() -> None:
    outputs = [output(1.0, 2.0, 4.0), output(2.0, 5.0, 8.0)]
    assert PhaseTimes.of(outputs, 9.0) == PhaseTimes(2.0, 3.0, 3.0, 1.0)
    assert PhaseTimes.of([], 9.0) == PhaseTimes(0.0, 0.0, 0.0, 9.0)


def test_the_slowest_of_the_last_ones() -> None:
    recent = RecentRequests()
    for seconds in [1e6, *range(NUM_RECENT)]:
        recent.add(replace(ENDED, seconds=float(seconds)))
    slowest = [request.seconds for request in recent.slowest()]
    assert slowest == [float(NUM_RECENT - 1 - place) for place in range(NUM_SLOWEST)]


def test_a_request_is_as_far_as_its_furthest_sample() -> None:
    statuses = [SampleStatus(SampleKey("1", number), phase, 0, 0) for number, phase in enumerate(Phase)]
    assert furthest(statuses) is Phase.DECODE
    assert furthest(statuses[:2]) is Phase.PREFILL
