"""Requests that are open, and the slowest of those that ended: where their time went."""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surefoot.api.outputs import RequestOutput
from surefoot.core import Phase, SampleStatus
from surefoot.engine import Times

NUM_RECENT = 1000  # ended requests of which the slowest are shown
NUM_SLOWEST = 20
ORDER = (Phase.QUEUE, Phase.PREFILL, Phase.DECODE)  # a request is as far as its furthest sample


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of a request by what it did."""

    queue_s: float
    prefill_s: float
    decode_s: float
    other_s: float = 0.0  # template, tokens, grammar before the engine; a reader that lags behind it

    @classmethod
    def so_far(cls, times: Times, now: float) -> "PhaseTimes":
        started = now if times.started is None else times.started
        first = now if times.first_token is None else times.first_token
        return cls(started - times.arrived, first - started, now - first)

    @classmethod
    def of(cls, outputs: Sequence[RequestOutput], total_s: float) -> "PhaseTimes":
        """Of the answer that took longest. An answer that was abandoned leaves no times: all is `other_s`."""
        if not outputs:
            return cls(0.0, 0.0, 0.0, total_s)
        times = max((output.timings for output in outputs), key=lambda timings: timings.total)
        prefill, decode = times.to_first_token - times.queued, times.total - times.to_first_token
        return cls(times.queued, prefill, decode, max(0.0, total_s - times.total))


@dataclass(frozen=True)
class OpenRequest:
    """A request in the engine."""

    id: str
    user: str
    route: str
    phase: str
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int  # of prompt and answer
    generated_tokens: int
    seconds: float  # since it arrived
    times: PhaseTimes


@dataclass(frozen=True)
class EndedRequest:
    id: str
    user: str
    route: str
    end: str  # how it ended: whole, abandoned, deadline …
    ended_at: float  # seconds since 1970
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seconds: float
    times: PhaseTimes


class RecentRequests:
    """The last requests that ended, a bounded number of them."""

    def __init__(self) -> None:
        self._recent: deque[EndedRequest] = deque(maxlen=NUM_RECENT)

    def add(self, request: EndedRequest) -> None:
        self._recent.append(request)

    def slowest(self) -> list[EndedRequest]:
        """The slowest first."""
        return heapq.nlargest(NUM_SLOWEST, self._recent, key=lambda request: request.seconds)


def furthest(statuses: Iterable[SampleStatus]) -> Phase:
    return max((status.phase for status in statuses), key=ORDER.index, default=Phase.QUEUE)
