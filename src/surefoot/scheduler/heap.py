"""A priority queue from which any item can be removed."""

from collections.abc import Hashable, Iterator
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
