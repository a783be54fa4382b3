"""Requests that are open, and users' shares of the tokens."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from surefoot.core import Phase, SampleStatus
from surefoot.server.metrics import PhaseTimes

ORDER = (Phase.QUEUE, Phase.PREFILL, Phase.DECODE)  # a request is as far as its furthest sample
NUM_READINGS = 60


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
