"""How the last quarter of an hour, day and week went: a ring of points for each, which a restart keeps."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from surefoot.machine.atomic_write import atomic_write
from surefoot.server.overview.figures import Interval, Samples

FIRST_TOKEN_S, GAP_S = 2.0, 0.2  # what users should see at most; bounds of the metrics' buckets
USUAL = 0.95  # the share of values that a point's `first_s` and `gap_s` cover
MOST_BYTES = 4 << 20  # of a file
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Span:
    point_s: float
    num_points: int


SpanName = Literal["minutes", "day", "week"]
SPANS: dict[SpanName, Span] = {"minutes": Span(5, 180), "day": Span(300, 288), "week": Span(1800, 336)}


@dataclass(frozen=True)
class Point:
    """The time since the point before."""

    at: float  # its end, in seconds since 1970
    generated: float  # tokens a second
    prompt: float  # tokens a second
    running: int  # requests, at its end
    waiting: int
    busy: float  # share of the time that steps took
    throttled: float  # share of the time in which the CPU quota held the server back
    first_tokens: int
    first_in_time: int
    first_s: float | None  # 95 of 100 first tokens came within this; None: none came
    gaps: int
    gaps_in_time: int
    gap_s: float | None


@dataclass(frozen=True)
class Reading:
    time: float  # monotonic
    at: float  # seconds since 1970
    samples: Samples

    @classmethod
    def of(cls, samples: Samples) -> "Reading":
        return cls(time.monotonic(), time.time(), samples)


def point(before: Reading, after: Reading) -> Point:
    interval = Interval(before.samples, after.samples, after.time - before.time)
    first, gap = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
    return Point(
        at=after.at,
        generated=interval.rate("vllm:generation_tokens_total"),
        prompt=interval.rate("vllm:prompt_tokens_total"),
        running=int(interval.value("vllm:num_requests_running")),
        waiting=int(interval.value("vllm:num_requests_waiting")),
        busy=interval.rate("surefoot:step_seconds_sum"),
        throttled=interval.rate("surefoot:cpu_throttled_seconds_total"),
        first_tokens=interval.observed(first),
        first_in_time=interval.observed(first, FIRST_TOKEN_S),
        first_s=interval.quantile(first, USUAL),
        gaps=interval.observed(gap),
        gaps_in_time=interval.observed(gap, GAP_S),
        gap_s=interval.quantile(gap, USUAL),
    )


class Ring:
    def __init__(self, span: Span, points: Iterable[Point] = ()) -> None:
        self.points = deque(points, maxlen=span.num_points)
        self._point_s = span.point_s
        self._before: Reading | None = None

    def add(self, reading: Reading) -> bool:
        """Returns whether the time of a point has passed."""
        before = self._before
        if before is not None and reading.time - before.time < self._point_s:
            return False
        self._before = reading
        if before is not None:
            self.points.append(point(before, reading))
        return before is not None


class History:
    def __init__(self, path: Path | None = None) -> None:
        """path: of the file that keeps it; None: it is forgotten with the process."""
        self._path = path
        saved = {} if path is None else _read(path)
        self._rings = {name: Ring(span, saved.get(name, ())) for name, span in SPANS.items()}

    def add(self, reading: Reading) -> bool:
        """Returns whether it should be saved."""
        added = {name for name, ring in self._rings.items() if ring.add(reading)}
        return "day" in added

    def points(self, span: SpanName) -> Sequence[Point]:
        return list(self._rings[span].points)

    def columns(self, span: SpanName) -> dict[str, list[Any]]:
        """The points' fields, each as a list."""
        points = self.points(span)
        return {field.name: [getattr(each, field.name) for each in points] for field in fields(Point)}

    def save(self) -> None:
        """A disk that is full loses it, and no more."""
        if self._path is None:
            return
        try:
            with atomic_write(self._path) as beside:
                beside.write_bytes(_SAVED.dump_json({name: list(ring.points) for name, ring in self._rings.items()}))
        except OSError as error:
            LOG.warning("the history of the overview is not kept: %s", error)

    async def record(self, read: Callable[[], Samples]) -> None:
        """Read the metrics again and again, for ever."""
        while True:
            if self.add(Reading.of(read())):
                await asyncio.to_thread(self.save)
            await asyncio.sleep(SPANS["minutes"].point_s)


_SAVED = TypeAdapter(dict[str, list[Point]])


def _read(path: Path) -> dict[str, list[Point]]:
    """What was saved; empty if nothing was, or nothing that can be read."""
    try:
        with path.open("rb") as file:
            return _SAVED.validate_json(file.read(MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        LOG.warning("the history of the overview begins anew: %s cannot be read (%s)", path, type(error).__name__)
        return {}
