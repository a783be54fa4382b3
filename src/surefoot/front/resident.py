"""One model as the residency policy sees it: its state, its use, and its worth in memory."""

import math
from dataclasses import dataclass, field
from enum import Enum

USE_MEMORY_S = 600.0  # time constant of a model's use: after it, a request counts 1/e
RESIDENCE = 2.0  # a model in demand stays loaded for this multiple of its load time
CERTAINTY = 1.645  # standard deviations of a one-sided 95 % confidence bound


@dataclass(frozen=True)
class DecayedCount:
    """Events, each counted as exp(-age / memory_s)."""

    memory_s: float
    value: float = 0.0
    time: float = 0.0  # at which the value holds

    def at(self, now: float) -> float:
        return self.value * math.exp(-max(0.0, now - self.time) / self.memory_s)

    def plus_one(self, now: float) -> "DecayedCount":
        return DecayedCount(self.memory_s, self.at(now) + 1.0, now)


class ModelState(Enum):
    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    DRAINING = "draining"  # loaded, finishes its requests, then is unloaded; new requests wait
    UNLOADING = "unloading"


@dataclass(frozen=True)
class ModelTraits:
    """What is known of a model before it is loaded."""

    name: str
    need_bytes: int  # memory of its process
    load_s: float  # predicted from its size; Residency scales it by the measured times of loads
    is_pinned: bool = False  # loaded at start and never unloaded
    keep_alive_s: float | None = None  # unloaded after this time without requests; None: when room is needed
    kv_bytes: int = 0  # part of `need_bytes` that is for keys and values


@dataclass
class Resident:
    """A model's state. `waiting` holds the arrival times and users of requests that wait for it to be loaded."""

    traits: ModelTraits
    load_s: float  # expected time of its next load
    state: ModelState = ModelState.UNLOADED
    since: float = 0.0  # when it entered this state
    num_busy: int = 0  # requests that it answers
    waiting: list[tuple[float, str]] = field(default_factory=list)
    use: DecayedCount = field(default_factory=lambda: DecayedCount(USE_MEMORY_S))
    last_used: float = -math.inf
    is_wanted: bool = False  # to be loaded even if no request waits
    swap_began: float | None = None  # when the swap for its last load began; None: it needed no swap
    not_before: float = -math.inf  # earliest time of the next load, after a crash
    num_crashes: int = 0  # in a row

    @property
    def need_bytes(self) -> int:
        return self.traits.need_bytes

    @property
    def held_bytes(self) -> int:
        """Memory that no other model may use. A pinned model's is reserved even while it is not loaded."""
        is_free = self.state is ModelState.UNLOADED and not self.traits.is_pinned
        return 0 if is_free else self.traits.need_bytes

    def become(self, state: ModelState, now: float) -> None:
        self.state, self.since = state, now

    def worth(self, now: float) -> float:
        """Seconds of loading that its recent requests would cost if each found it unloaded. After a swap, use is an
        upper confidence bound for a while, so that chance differences in use do not undo the swap."""
        use = self.use.at(now)
        return self.load_s * (surely_more(use) if self.swap_began is not None and self.is_new(now) else use)

    def is_new(self, now: float) -> bool:
        return now - self.since < RESIDENCE * self.load_s

    def quiet_s(self, now: float) -> float:
        return 0.0 if self.num_busy else now - self.last_used

    def swap_cost(self, now: float) -> float:
        """Expected seconds of waiting if it is unloaded now: load time times the probability of a request soon."""
        return self.load_s * math.exp(-self.quiet_s(now) / self.load_s)

    def is_guarded(self, now: float) -> bool:
        """Whether it was loaded too recently to be unloaded while there is demand for it."""
        return self.is_new(now) and self.quiet_s(now) < self.load_s

    def waited_s(self, now: float) -> float:
        """Total time waited by all waiting requests."""
        return sum(now - arrival for arrival, _ in self.waiting)

    @property
    def users_waiting(self) -> frozenset[str]:
        return frozenset(user for _, user in self.waiting)


def surely_more(count: float) -> float:
    """Upper confidence bound of a count: the least count n that differs from it significantly. n - count = CERTAINTY *
    sqrt(n + count), where the root is the standard deviation of the difference of two Poisson counts."""
    return count + CERTAINTY**2 / 2 + CERTAINTY * math.sqrt(2 * count + CERTAINTY**2 / 4)
