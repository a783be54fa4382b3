"""What an operator is told first."""

from dataclasses import replace

import pytest

from surefoot.core import Phase, SampleKey, SampleStatus
from surefoot.server.overview.figures import View, look
from surefoot.server.overview.history import Point
from surefoot.server.overview.verdicts import alerts, bound_of_step, in_time, limit
from surefoot.speed.step_time import ChunkLoad, StepParts

QUIET = look({}, {}, 1.0)
BUSY = Point(0.0, 10.0, 0.0, 4, 0, 0.9, 0.0, 40, 40, 1.0, 400, 400, 0.1)
WAITING = replace(QUIET, requests_waiting=3, requests_running=4)


def test_shares_in_time_are_of_all_points() -> None:
    found = in_time([BUSY, replace(BUSY, first_in_time=0, gaps=0, gaps_in_time=0)])
    assert (found.first_tokens, found.gaps, found.num_first_tokens) == (0.5, 1.0, 80)
    assert (in_time([]).first_tokens, in_time([]).gaps) == (None, None)


@pytest.mark.parametrize(
    ("view", "point", "bound", "expected"),
    [
        (QUIET, None, "arithmetic", "nothing"),
        (QUIET, replace(BUSY, busy=0.1), "arithmetic", "nothing"),
        (QUIET, BUSY, "arithmetic", "arithmetic"),
        (QUIET, replace(BUSY, throttled=0.3), "arithmetic", "quota"),
        (replace(WAITING, kv_use=0.99), BUSY, "arithmetic", "memory"),
        (WAITING, BUSY, "memory bandwidth", "places"),
        (WAITING, BUSY, "arithmetic", "arithmetic"),  # one more in a step would cost as much as it gains
        (replace(WAITING, requests_running=3), BUSY, "memory bandwidth", "memory bandwidth"),
    ],
)
def test_what_limits(view: View, point: Point | None, bound: str, expected: str) -> None:
    assert limit(view, point, bound, max_running=4) == expected


class NotedTimes:
    def __init__(self) -> None:
        self.seen: list[tuple[list[ChunkLoad], int]] = []

    def parts(self, chunks: list[ChunkLoad], num_logits: int) -> StepParts:
        self.seen.append((chunks, num_logits))
        return StepParts(memory=1.0, linear=1.0)


def test_a_step_is_of_the_requests_that_run() -> None:
    key, times = SampleKey("a", 0), NotedTimes()
    statuses = [
        SampleStatus(key, Phase.QUEUE, 0, 0), SampleStatus(key, Phase.PREFILL, 256, 0),
        SampleStatus(key, Phase.DECODE, 90, 0),
    ]  # fmt: skip
    assert bound_of_step(times, statuses, 512) == "memory bandwidth"  # type: ignore[arg-type]
    bound_of_step(times, [], 512)  # type: ignore[arg-type]
    assert times.seen == [([ChunkLoad(512, 256), ChunkLoad(1, 90)], 2), ([ChunkLoad(1, 0)], 1)]


def test_alerts() -> None:
    late = replace(BUSY, first_in_time=10, throttled=0.1)
    trouble = replace(QUIET, engine_failures=2, memory_bytes=99, memory_limit_bytes=100)
    found = alerts(trouble, in_time([late]), [late], is_alive=False, lines_lost=7)
    assert [(alert.kind, alert.value) for alert in found] == [
        ("stuck", 0.0), ("failures", 2), ("lines_lost", 7), ("memory", 0.99), ("throttled", 0.1), ("late_first", 0.75),
    ]  # fmt: skip
    assert list(alerts(QUIET, in_time([BUSY]), [BUSY], is_alive=True, lines_lost=0)) == []
    few = replace(late, first_tokens=4, first_in_time=0, throttled=0.0)
    assert list(alerts(QUIET, in_time([few]), [few], is_alive=True, lines_lost=0)) == []
