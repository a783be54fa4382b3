"""One model as the policy sees it: its state, its use, and what it is worth to keep it in memory."""

import math
from dataclasses import dataclass, field
from enum import Enum

from surefoot.front.decay import DecayedCount

USE_MEMORY_S = 600.0  # after which a request counts for a third in a model's use
RESIDENCE = 2.0  # times its load time, for which a model in demand stays loaded
CERTAINTY = 1.645  # standard deviations by which counts of use differ surely: one chance in twenty of error


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
    load_s: float  # as its size tells; how long loads really take is learnt for all models together
    is_pinned: bool = False  # loaded at start and never unloaded
    keep_alive_s: float | None = None  # unloaded after this time without requests; None: when room is needed
    kv_bytes: int = 0  # of `need_bytes`, for keys and values


@dataclass
class Resident:
    """A model's state. `waiting` holds the arrival times and users of requests that wait for it to be loaded."""

    traits: ModelTraits
    load_s: float  # expected of its next load
    state: ModelState = ModelState.UNLOADED
    since: float = 0.0  # when it came into this state
    num_busy: int = 0  # requests that it answers
    waiting: list[tuple[float, str]] = field(default_factory=list)
    use: DecayedCount = field(default_factory=lambda: DecayedCount(USE_MEMORY_S))
    last_used: float = -math.inf
    is_wanted: bool = False  # to be loaded even if no request waits
    swap_began: float | None = None  # when others had to go for its last load; None: there was room
    not_before: float = -math.inf  # of the next load, after its process ended by itself
    num_crashes: int = 0  # in a row

    @property
    def need_bytes(self) -> int:
        return self.traits.need_bytes

    @property
    def held_bytes(self) -> int:
        """Memory that no other model may use: a pinned model's is kept even while its process is not there."""
        is_free = self.state is ModelState.UNLOADED and not self.traits.is_pinned
        return 0 if is_free else self.traits.need_bytes

    def become(self, state: ModelState, now: float) -> None:
        self.state, self.since = state, now

    def worth(self, now: float) -> float:
        """Seconds of loading that its requests of the last minutes would cost if each found it unloaded. A swap is not
        undone on a difference in use that may be chance."""
        use = self.use.at(now)
        return self.load_s * (surely_more(use) if self.swap_began is not None and self.is_new(now) else use)

    def is_new(self, now: float) -> bool:
        return now - self.since < RESIDENCE * self.load_s

    def quiet_s(self, now: float) -> float:
        return 0.0 if self.num_busy else now - self.last_used

    def swap_cost(self, now: float) -> float:
        """Seconds that its next request will wait if it is unloaded now, times how likely that comes soon."""
        return self.load_s * math.exp(-self.quiet_s(now) / self.load_s)

    def is_guarded(self, now: float) -> bool:
        """Whether it was loaded too recently to be unloaded while there is demand for it."""
        return self.is_new(now) and self.quiet_s(now) < self.load_s

    def waited_s(self, now: float) -> float:
        """Of all waiting requests together."""
        return sum(now - arrival for arrival, _ in self.waiting)

    @property
    def users_waiting(self) -> frozenset[str]:
        return frozenset(user for _, user in self.waiting)


def surely_more(count: float) -> float:
    """The least count that shows a higher rate than this one does: n such that n - count = CERTAINTY * sqrt(n + count),
    the standard deviation of the difference of two such counts."""
    return count + CERTAINTY**2 / 2 + CERTAINTY * math.sqrt(2 * count + CERTAINTY**2 / 4)
