"""Budgets that users share: no user can take so much that nothing is left for the next.

Without keys all clients are one user, whose name is empty and who may hold all of a budget. Such a server can be
reached from its own machine alone, where addresses would not tell clients apart.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

EVERYONE = ""
# The user of the request that a task works on: the task waits for turns in this user's name.
asking_user: ContextVar[str] = ContextVar("asking_user", default=EVERYONE)


class SharedBudget:
    """An amount of which each user may hold half of what the others leave: the first half of it, the next a quarter.

    So one user's requests never take all that another needs, without knowing which users will come.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.num_held = 0
        self._by_user: Counter[str] = Counter()

    def held_by(self, user: str) -> int:
        return self._by_user[user]

    def take(self, user: str, amount: int = 1) -> bool:
        """Take the amount if the user's share allows it. Returns whether it was taken."""
        own = self._by_user[user]
        left_by_others = self.total - self.num_held + own
        share = left_by_others if user == EVERYONE else (left_by_others + 1) // 2
        if own + amount > share:
            return False
        self._by_user[user] += amount
        self.num_held += amount
        return True

    def give_back(self, user: str, amount: int = 1) -> None:
        self.num_held -= amount
        self._by_user[user] -= amount
        if not self._by_user[user]:
            del self._by_user[user]


class Turns:
    """Slots for short work, given to waiting users in turn: one user's many requests delay another's by one turn at
    most."""

    def __init__(self, num_slots: int) -> None:
        self._num_free = num_slots
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user; the first user is next

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._wait(asking_user.get())
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, user: str) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():  # the slot was granted at the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            user, slots = next(iter(self._waiting.items()))
            slot = slots.popleft()
            del self._waiting[user]
            if slots:
                self._waiting[user] = slots  # behind the other users
            if not slot.done():
                slot.set_result(None)
                return
        self._num_free += 1
