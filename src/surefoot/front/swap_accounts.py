"""Users who are paused because their swaps cost other users time. A paused user may not unload models that unpaused
users use (residency.py). The time is passed in."""

from collections.abc import Iterable, Mapping

IN_USE_S = 60.0  # a model counts as used by a user for this time and `max_wait_s` after its last answer
PAUSE = 3.0  # a pause lasts this multiple of swap time times number of users: swaps take a third of the time at most


class SwapAccounts:
    """Recent use of models by users, and users' pauses.

    needs: bytes of each model that can be swapped. room_bytes: memory for all of them. Every user's share of the memory
    is equal, and at least one model.
    """

    def __init__(self, needs: Mapping[str, int], room_bytes: int, max_wait_s: float) -> None:
        self._needs = needs
        self._room_bytes = room_bytes
        self._max_wait_s = max_wait_s
        self._window_s = IN_USE_S + max_wait_s  # a wait for another model must not make this one unused
        self._used: dict[str, dict[str, float]] = {}  # by user: when each model last answered
        self._paused_until: dict[str, float] = {}  # by user

    def use(self, user: str, model: str, now: float) -> None:
        """The model begins or ends an answer to the user."""
        if model in self._needs:
            self._used[user] = {**self._used.pop(user, {}), model: now}  # users in the order of their last use
            while not self._recent(oldest := next(iter(self._used)), now):
                del self._used[oldest]

    def users_of(self, model: str, now: float) -> frozenset[str]:
        return frozenset(user for user in self._used if model in self._recent(user, now))

    def exceeds_share(self, user: str, model: str, now: float) -> bool:
        """Whether the user would need a swap for the model even in a memory of their own, as large as their share: the
        models used since the user last used this one do not fit beside it."""
        recent = self._recent(user, now)
        last_used = recent.get(model, now - self._window_s)
        since = [self._needs[other] for other, used in recent.items() if used > last_used]
        return bool(since) and (sum(since) + self._needs[model]) * self._num_users(now) > self._room_bytes

    def charge(self, user: str, seconds: float, now: float) -> None:
        """Pause the user, whose swap takes these seconds from other users."""
        self._paused_until[user] = now + seconds + min(PAUSE * self._num_users(now) * seconds, self._max_wait_s)

    def unpaused(self, users: Iterable[str], now: float) -> frozenset[str]:
        """The users among these who are not paused."""
        return frozenset(user for user in users if now >= self._paused_until.get(user, now))

    def _num_users(self, now: float) -> int:
        return sum(bool(self._recent(user, now)) for user in self._used)

    def _recent(self, user: str, now: float) -> dict[str, float]:
        return {model: used for model, used in self._used.get(user, {}).items() if now - used < self._window_s}
