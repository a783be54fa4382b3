"""Fair sharing: each user has a counter of served tokens, and the user with the lowest counter goes first. And the heap
that orders users and samples."""

from collections.abc import Hashable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class LazyHeap(Generic[T]):
    """A heap with lazy deletion: removed entries stay until they reach the top or outnumber the others.

    An item is in the heap once, with its last key. Items with equal keys leave in the order in which they were pushed.
    All operations but `smallest` take amortised O(log n).
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Any, int, T]] = []
        self._live: dict[T, int] = {}
        self._numbers = count()

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
