"""Requests that are open, by user, and the slowest of those that ended: where their time went."""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from surefoot.api.answers import RequestOutput
from surefoot.core import Phase, SampleStatus
from surefoot.engine import Times

NUM_RECENT = 1000  # ended requests of which the slowest are shown
NUM_SLOWEST = 20
ORDER = (Phase.QUEUE, Phase.PREFILL, Phase.DECODE)  # a request is as far as its furthest sample
NUM_READINGS = 60


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


@dataclass(frozen=True)
class UserShare:
    user: str
    running: int  # requests
    waiting: int
    tokens: float  # of prompts and answers since the start
    tokens_per_second: float
    share: float | None  # of all users' tokens; None if there were none
    fair_share: float | None  # by weight among the users with open requests; None for others


@dataclass(frozen=True)
class _Reading:
    time: float
    tokens: Mapping[str, float]  # by user, since the start


class UserShares:
    """Tokens by user over a sliding window of readings."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque(maxlen=NUM_READINGS)

    def read(
        self, now: float, tokens: Mapping[str, float], requests: Sequence[OpenRequest], weights: Mapping[str, float]
    ) -> list[UserShare]:
        """tokens: of ended and open requests since the start. weights: of the users with open requests."""
        self._readings.append(_Reading(now, tokens))
        first = self._readings[0]
        grown = {user: count - first.tokens.get(user, 0.0) for user, count in tokens.items()}
        total, seconds = sum(grown.values()), max(now - first.time, 1e-9)
        waiting = _count(request for request in requests if request.phase == Phase.QUEUE.value)
        present = _count(requests)
        shares = [
            UserShare(
                user, present[user] - waiting[user], waiting[user], count, grown[user] / seconds,
                grown[user] / total if total else None,
                weights[user] / sum(weights.values()) if user in weights else None,
            )
            for user, count in tokens.items()
        ]  # fmt: skip
        return sorted(shares, key=lambda share: (-share.tokens_per_second, -share.tokens, share.user))


def _count(requests: Iterable[OpenRequest]) -> Counter[str]:
    return Counter(request.user for request in requests)
