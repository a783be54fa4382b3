"""Callers, and budgets that users share: no user can take so much that nothing is left for the next. And the queue's
places, which a request takes before any work is done for it.

Without keys all clients are one user, whose name is empty and who may hold all of a budget. Such a server can be
reached from its own machine alone, where addresses would not tell clients apart."""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from surefoot.core import MEMORY_ONLY
from surefoot.server.access.rates import ChargedRate
from surefoot.server.errors import ApiError, too_many

EVERYONE = ""
CREDIT_S = 1.0  # that a user is ahead of others at most: a longer time without turns earns no more
LEAST_TURN_S = 0.001  # that a turn counts for: quick turns are counted, not measured
# The user of the request that a task works on: the task waits for turns in this user's name.
asking_user: ContextVar[str] = ContextVar("asking_user", default=EVERYONE)
SMOOTHING = 0.1  # weight of the newest duration in the running mean


@dataclass(frozen=True)
class Caller:
    """The user behind a request, with their limits. Without keys all clients are the same user."""

    user: str = ""
    key: str = ""  # the key's name in logs
    weight: float = 1.0  # share of a busy machine
    priority: int = 0  # larger is served first
    max_context: int | None = None  # tokens of prompt and answer; None: as many as the model's context
    is_admin: bool = False  # may see figures of other users, add keys and revoke them
    uses_disk: bool = True  # prompts and answers may be kept in the prompt cache on disk
    upstreams: tuple[str, ...] = ()  # that may answer the caller's requests
    upstream_budget: float = 0.0  # that they may cost in a day
    requests: ChargedRate | None = field(default=None, compare=False)  # left of the rate of requests; None: no limit
    tokens: ChargedRate | None = field(default=None, compare=False)  # left of the rate of tokens; None: no limit

    @property
    def namespace(self) -> str:
        """Of the user's cached prefixes."""
        return self.user if self.uses_disk else MEMORY_ONLY + self.user


ANYONE = Caller()


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
    """Slots for short work. The next one goes to the waiting user who has held slots for the least time, so that one
    user's many requests, or slow ones, delay another's by one turn at most."""

    def __init__(self, num_slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_slots = self._num_free = num_slots
        self._clock = clock
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user
        self._held_s: defaultdict[str, float] = defaultdict(float)  # by user, since all slots were last free

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        user = asking_user.get()
        await self._wait(user)
        began = self._clock()
        try:
            yield
        finally:
            self._held_s[user] += max(LEAST_TURN_S, self._clock() - began)
            self._pass_on()

    async def _wait(self, user: str) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        if user not in self._waiting:
            lowest = min((self._held_s[other] for other in self._waiting), default=0.0)
            self._held_s[user] = max(self._held_s[user], lowest - CREDIT_S)
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
            user = min(self._waiting, key=self._held_s.__getitem__)  # of equals the one that waits longest
            slots = self._waiting.pop(user)
            slot = slots.popleft()
            if slots:
                self._waiting[user] = slots  # behind the other users
            if not slot.done():
                slot.set_result(None)
                return
        self._num_free += 1
        if self._num_free == self._num_slots:
            self._held_s.clear()


class Admission:
    """The places of all requests that have not ended, running and waiting."""

    def __init__(self, max_queue: int) -> None:
        self._places = SharedBudget(max_queue)
        self._mean_s = 1.0  # running mean of requests' durations, for Retry-After

    @property
    def num_requests(self) -> int:
        return self._places.num_held

    def admit(self, caller: Caller) -> "Ticket":
        """Raises ApiError if the queue or the caller's share of it is full, or a rate is used up."""
        if not self._places.take(caller.user):
            own = self._places.held_by(caller.user)
            message = f"{self.num_requests} requests are in the queue, {own} of them yours"
            raise too_many(message, self._mean_s, "queue_full")
        try:
            _charge(caller)
        except ApiError:
            self.release(caller)
            raise
        asking_user.set(caller.user)
        return Ticket(self, caller)

    def release(self, caller: Caller) -> None:
        self._places.give_back(caller.user)

    def observe(self, duration_s: float) -> None:
        """A request has ended after this time."""
        self._mean_s += SMOOTHING * (duration_s - self._mean_s)


class Ticket:
    """A place in the queue, released once: at the end of its `with` block, or by the run that took it over."""

    def __init__(self, admission: Admission, caller: Caller) -> None:
        self.caller = caller
        self.is_taken_over = False
        self._admission = admission
        self._is_open = True

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._admission.release(self.caller)

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *error: object) -> None:
        if not self.is_taken_over:
            self.release()


def _charge(caller: Caller) -> None:
    """Charge one request to the caller's rates. Tokens are charged when the request ends; a used-up rate refuses it
    now."""
    if caller.requests is not None:
        if wait_s := caller.requests.wait_s(1):
            raise too_many("more requests than your key allows in a minute", wait_s)
        caller.requests.take(1)
    if caller.tokens is not None and (wait_s := caller.tokens.wait_s(1)):
        raise too_many("more tokens than your key allows in a minute", wait_s)
