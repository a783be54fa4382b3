"""What an operator asks first: is everyone served in time, what limits the server, and does anything want a look?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surefoot.core import Phase, SampleStatus
from surefoot.server.overview.figures import View
from surefoot.server.overview.history import FIRST_TOKEN_S, GAP_S, Point
from surefoot.speed.step_time import ChunkLoad, PredictedSteps

IDLE, QUOTA, MEMORY, PLACES = "nothing", "quota", "memory", "places"  # limits besides the planner's (StepParts.bound)
CHEAP_ROWS = ("memory bandwidth", "overhead")  # where one request more in a step costs little
IDLE_SHARE = 0.5  # steps take less of the time: requests are what is missing
THROTTLED_SHARE = 0.05
FULL = 0.95  # of KV blocks, or of the process's memory
ENOUGH_VALUES = 20  # of which a share is told
LATE_SHARE = 0.9


@dataclass(frozen=True)
class InTime:
    """Shares of the last quarter of an hour. None: nothing happened."""

    first_tokens: float | None
    gaps: float | None
    num_first_tokens: int
    num_gaps: int
    first_token_s: float = FIRST_TOKEN_S
    gap_s: float = GAP_S


def in_time(points: Sequence[Point]) -> InTime:
    num_first, num_gaps = sum(point.first_tokens for point in points), sum(point.gaps for point in points)
    return InTime(
        sum(point.first_in_time for point in points) / num_first if num_first else None,
        sum(point.gaps_in_time for point in points) / num_gaps if num_gaps else None,
        num_first,
        num_gaps,
    )


def limit(view: View, point: Point | None, bound: str, max_running: int) -> str:
    """What more of would make answers faster. bound: what takes most of a step, in the planner's words."""
    if point is None or point.busy < IDLE_SHARE:
        return IDLE
    if point.throttled > THROTTLED_SHARE:
        return QUOTA
    if view.requests_waiting and view.kv_use > FULL:
        return MEMORY
    if view.requests_waiting and view.requests_running >= max_running and bound in CHEAP_ROWS:
        return PLACES
    return bound


def bound_of_step(times: PredictedSteps, statuses: Sequence[SampleStatus], max_chunk: int) -> str:
    """What takes most of a step of these requests: of a prompt, a whole chunk."""
    rows = {Phase.DECODE: 1, Phase.PREFILL: max_chunk}
    chunks = [ChunkLoad(rows[each.phase], each.num_computed) for each in statuses if each.phase in rows]
    return times.parts(chunks or [ChunkLoad(1, 0)], max(1, len(chunks))).bound


@dataclass(frozen=True)
class Alert:
    """The page has a sentence for each kind."""

    kind: str
    value: float = 0.0


def alerts(view: View, served: InTime, points: Sequence[Point], *, is_alive: bool, lines_lost: int) -> Iterator[Alert]:
    if not is_alive:
        yield Alert("stuck")
    if view.engine_failures:
        yield Alert("failures", view.engine_failures)
    if lines_lost:
        yield Alert("lines_lost", lines_lost)
    if view.memory_limit_bytes and view.memory_bytes > FULL * view.memory_limit_bytes:
        yield Alert("memory", view.memory_bytes / view.memory_limit_bytes)
    throttled = sum(point.throttled for point in points) / max(1, len(points))
    if throttled > THROTTLED_SHARE:
        yield Alert("throttled", throttled)
    for kind, share, count in (
        ("late_first", served.first_tokens, served.num_first_tokens),
        ("late_gaps", served.gaps, served.num_gaps),
    ):
        if share is not None and share < LATE_SHARE and count >= ENOUGH_VALUES:
            yield Alert(kind, 1 - share)
