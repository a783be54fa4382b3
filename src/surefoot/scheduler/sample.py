"""The scheduler's view of a sample: its tokens, its blocks, its state, and its user.

Sharing is fair: each user has a counter of served tokens, and the user with the lowest counter goes first."""

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from surefoot.core import FinishReason, Request, SampleKey, ServiceClass
from surefoot.kv import BlockKey, Holding, PrefixNode

T = TypeVar("T", bound=Hashable)


class LazyHeap(Generic[T]):
    """A heap with lazy deletion: removed entries stay until they reach the top or outnumber the others.

    An item is in the heap once, with its last key. Items with equal keys leave in the order in which they were pushed.
    All operations but `smallest` take amortised O(log n).
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Any, int, T]] = []
        self._live: dict[T, int] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, item: T) -> bool:
        return item in self._live

    def __iter__(self) -> Iterator[T]:
        """All items, in no order."""
        return iter(self._live)

    def push(self, key: Any, item: T) -> None:
        number = self._live[item] = next(self._numbers)
        heappush(self._entries, (key, number, item))
        if len(self._entries) > 2 * len(self._live) + 32:
            self._entries = [entry for entry in self._entries if self._live.get(entry[2]) == entry[1]]
            heapify(self._entries)

    def discard(self, item: T) -> None:
        self._live.pop(item, None)

    def peek(self) -> tuple[Any, T] | None:
        """The smallest key and its item."""
        while self._entries:
            key, number, item = self._entries[0]
            if self._live.get(item) == number:
                return key, item
            heappop(self._entries)
        return None

    def smallest(self, limit: int) -> list[tuple[Any, T]]:
        """At most `limit` entries with the smallest keys, in order; O(limit log n)."""
        taken: list[tuple[Any, int, T]] = []
        while len(taken) < limit and self.peek() is not None:
            taken.append(heappop(self._entries))
        for entry in taken:
            heappush(self._entries, entry)
        return [(key, item) for key, _, item in taken]


class User:
    """One user's weight, counter and use."""

    __slots__ = ("counter", "inverse_weight", "name", "num_rows", "num_samples")

    def __init__(self, name: str, weight: float) -> None:
        self.name = name
        self.inverse_weight = 1.0 / weight
        self.counter = 0.0  # tokens served so far, divided by the weight; it only grows
        self.num_samples = 0  # samples that have not ended
        self.num_rows = 0  # rows that they hold

    @property
    def weight(self) -> float:
        return 1.0 / self.inverse_weight


class Users:
    """A virtual token counter for each user.

    A user is present while one of their samples has not ended. The counter of a user who returns is raised to the
    lowest counter of the users present (or to that of the last user who left, if none is present): idle time earns no
    credit. An absent user is forgotten as soon as their counter would be raised in any case.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.num_served = 0.0  # tokens charged to all users together
        self._weights = dict(weights)
        self._present: dict[str, User] = {}
        self._absent: dict[str, User] = {}
        self._lowest: LazyHeap[User] = LazyHeap()  # of the users present, by a counter that may be out of date
        self._lowest_absent: LazyHeap[User] = LazyHeap()
        self._last_left = 0.0  # the highest counter of the users who left
        self._total_weight = 0.0  # of the users present

    def __len__(self) -> int:
        return len(self._present) + len(self._absent)

    def enter(self, name: str, weight: float | None = None) -> User:
        """Counts one more sample of the user. weight: applies from now on, if given."""
        user = self._present.get(name)
        if user is None:
            user = self._absent.pop(name, None) or User(name, self._weights.get(name, 1.0))
            self._lowest_absent.discard(user)
            user.counter = max(user.counter, self.floor())
            self._present[name] = user
            self._lowest.push(user.counter, user)
            self._total_weight += user.weight
        if weight is not None:
            self._total_weight += weight - user.weight
            user.inverse_weight = 1.0 / weight
        user.num_samples += 1
        return user

    def leave(self, user: User) -> None:
        """One of the user's samples has ended."""
        user.num_samples -= 1
        if user.num_samples:
            return
        del self._present[user.name]
        self._total_weight = self._total_weight - user.weight if self._present else 0.0
        self._lowest.discard(user)
        self._last_left = max(self._last_left, user.counter)
        self._absent[user.name] = user
        self._lowest_absent.push(user.counter, user)
        self._forget_absent()

    def charge(self, user: User, cost: float) -> None:
        user.counter += cost * user.inverse_weight
        self.num_served += cost

    def fair_share(self, user: User, num_rows: int) -> float:
        """The user's share of `num_rows` rows, by weight among the users present."""
        return num_rows * user.weight / self._total_weight

    def largest_holder(self) -> User | None:
        """The user with most rows relative to their weight, of the users with several: a user's only row stays. A user
        of little weight is above their fair share with one row, and must not hide a user who holds all others."""
        holders = (user for user in self._present.values() if user.num_rows > 1)
        return max(holders, key=lambda user: user.num_rows * user.inverse_weight, default=None)

    def floor(self) -> float:
        """The lowest counter of the users present."""
        while (lowest := self._lowest.peek()) is not None:
            counter, user = lowest
            if user.counter == counter:
                return user.counter
            self._lowest.push(user.counter, user)
        return self._last_left

    def _forget_absent(self) -> None:
        floor = self.floor()
        while (lowest := self._lowest_absent.peek()) is not None and lowest[0] <= floor:
            self._lowest_absent.discard(lowest[1])
            del self._absent[lowest[1].name]

    def audit(self, users: list[User]) -> None:
        """users: of each sample that has not ended."""
        assert {user.name: user for user in users} == self._present
        num_samples = {user: user.num_samples for user in self._present.values()}
        assert {user: users.count(user) for user in users} == num_samples
        assert set(self._lowest) == set(self._present.values())
        weights = sum(user.weight for user in self._present.values())
        assert abs(self._total_weight - weights) <= 1e-6 * (1 + weights)
        assert set(self._lowest_absent) == set(self._absent.values())
        assert not self._present.keys() & self._absent.keys()


class ColdRead(Protocol):
    """Blocks on their way into the prefix tree."""

    @property
    def is_done(self) -> bool:
        """Whether all of them are in the tree, as far as they could be read."""

    def cancel(self) -> None:
        """No sample waits for them any more."""


class ColdBlocks(Protocol):
    """Cached blocks outside of memory."""

    def start_read(self, holding: Holding, keys: Sequence[BlockKey], cached: Sequence[PrefixNode]) -> ColdRead | None:
        """Begin to read the blocks of these keys that follow the cached ones; None if there are none."""

    def expect(self, holding: Holding, keys: Sequence[BlockKey]) -> None:
        """These blocks will be wanted, but not yet: they may be brought nearer meanwhile."""


class State(Enum):
    WAITING = auto()  # has no row and no blocks
    PREFILLING = auto()  # has a row and blocks, and more than one token to compute
    DECODING = auto()  # has one token to compute, its last
    ENDED = auto()


class Sample:
    """One continuation of a request. Until the end of the prompt, one sample represents all n."""

    __slots__ = (
        "arrival", "drafts", "end", "end_reason", "fast_until", "holding", "key", "keys", "num_cached", "num_charged",
        "num_slots", "reading", "request", "sample_numbers", "state", "stops", "tag", "tokens", "user",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        number: int,
        user: User,
        holding: Holding,
        arrival: int,
        end: int,
        end_reason: FinishReason,
    ) -> None:
        self.request = request
        self.key = SampleKey(request.id, number)
        self.user = user
        self.holding = holding
        self.arrival = arrival  # number of the request, in order of arrival
        self.end = end  # length in tokens at which the sample ends, unless it ends earlier
        self.end_reason = end_reason  # reported if it ends there
        self.stops = request.stop_ids
        self.tokens = list(request.prompt)
        self.keys: list[BlockKey] = []  # of full blocks
        self.sample_numbers: tuple[int, ...] = (number,)  # the samples that it represents, itself included
        self.drafts: tuple[int, ...] = ()
        self.state = State.WAITING
        self.tag = 0.0  # order among the user's requests: the lowest goes first
        self.num_charged = 0  # tokens charged to the user
        self.num_cached = 0  # prompt tokens that came from the prefix cache
        self.num_slots = 0  # slots of blocks that only this sample writes: up to there no block must be allocated
        self.reading: ColdRead | None = None  # blocks that it waits for before it is admitted
        self.fast_until = 0  # while fewer tokens are computed, a token fills no block and is not the last

    @property
    def age(self) -> tuple[int, int]:
        """Smaller is older."""
        return self.arrival, self.key.sample

    @property
    def precedence(self) -> tuple[int, int]:
        """Smaller is served first."""
        return self.request.service, -self.request.priority

    @property
    def rank(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Larger is preempted first."""
        return self.precedence, self.age

    @property
    def is_urgent(self) -> bool:
        """Interactive, and its user's only sample."""
        return self.user.num_samples == 1 and self.request.service is ServiceClass.INTERACTIVE

    @property
    def is_batch(self) -> bool:
        return self.request.service is ServiceClass.BATCH

    @property
    def num_computed(self) -> int:
        return self.holding.num_computed

    @property
    def num_left(self) -> int:
        """Tokens to compute before the next token can be sampled."""
        return len(self.tokens) - self.num_computed

    @property
    def num_answered(self) -> int:
        """Tokens of the answer that were sampled here."""
        begun = self.request.begun
        return len(self.tokens) - len(self.request.prompt) - (len(begun[self.key.sample]) if begun else 0)

    def accept(self, sampled: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Append sampled tokens up to the one that ends the sample. Returns those tokens, and the reason if it ends.

        An embedding ends without a token.
        """
        for count, token in enumerate(sampled, 1):
            if token < 0:
                return sampled[: count - 1], FinishReason.ERROR
            self.tokens.append(token)
            if token in self.stops:
                return sampled[:count], FinishReason.STOP
            if len(self.tokens) >= self.end:
                return sampled[:count], self.end_reason
        return sampled, None if sampled else FinishReason.STOP

    def full_keys(self, block_size: int) -> list[BlockKey]:
        """Keys of the full blocks. A request that needs every token computed has no keys: it cannot use the prefix
        cache, and many such documents would evict what other requests could share."""
        if self.request.needs_every_token:
            return self.keys
        for start in range(len(self.keys) * block_size, len(self.tokens) - block_size + 1, block_size):
            self.keys.append(tuple(self.tokens[start : start + block_size]))
        return self.keys

    def known_keys(self, block_size: int) -> list[BlockKey]:
        """Keys of blocks that may come from the cache. The last token is always computed: its logits are needed."""
        return self.full_keys(block_size)[: (len(self.tokens) - 1) // block_size]
