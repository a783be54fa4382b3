"""What each user has had: a counter of tokens served, so that who has had least goes first."""

from collections.abc import Mapping

from surefoot.scheduler.heap import LazyHeap


class User:
    """counter: tokens served so far, over the user's weight; it only grows. num_rows: taken by their samples."""

    __slots__ = ("counter", "name", "num_rows", "num_samples", "share")

    def __init__(self, name: str, weight: float) -> None:
        self.name = name
        self.share = 1.0 / weight
        self.counter = 0.0
        self.num_samples = self.num_rows = 0

    @property
    def weight(self) -> float:
        return 1.0 / self.share


class Users:
    """A virtual token counter for each user.

    One who comes back is lifted to the least counter of those who are here (or of the last who left, if none is): time
    away earns nothing. One who is away is forgotten as soon as that lift would decide the counter anyway.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)
        self._here: dict[str, User] = {}
        self._away: dict[str, User] = {}
        self._least: LazyHeap[User] = LazyHeap()  # of those here, by a counter that may be out of date
        self._by_absence: LazyHeap[User] = LazyHeap()
        self._last_left = 0.0
        self._total_weight = 0.0  # of those here

    def __len__(self) -> int:
        return len(self._here) + len(self._away)

    def enter(self, name: str, weight: float | None = None) -> User:
        """The user, with one more sample, and from now on of that weight."""
        user = self._here.get(name)
        if user is None:
            user = self._away.pop(name, None) or User(name, self._weights.get(name, 1.0))
            self._by_absence.discard(user)
            user.counter = max(user.counter, self.floor())
            self._here[name] = user
            self._least.push(user.counter, user)
            self._total_weight += user.weight
        if weight is not None:
            self._total_weight += weight - user.weight
            user.share = 1.0 / weight
        user.num_samples += 1
        return user

    def leave(self, user: User) -> None:
        user.num_samples -= 1
        if user.num_samples:
            return
        del self._here[user.name]
        self._total_weight = self._total_weight - user.weight if self._here else 0.0
        self._least.discard(user)
        self._last_left = max(self._last_left, user.counter)
        self._away[user.name] = user
        self._by_absence.push(user.counter, user)
        self._forget()

    def part(self, user: User, num_rows: int) -> float:
        """The user's part of so many rows, among those who are here."""
        return num_rows * user.weight / self._total_weight

    def largest_holder(self) -> User:
        """Who holds most rows for their weight."""
        return max(self._here.values(), key=lambda user: user.num_rows * user.share)

    def floor(self) -> float:
        """The least counter of those who are here."""
        while (least := self._least.peek()) is not None:
            counter, user = least
            if user.counter == counter:
                return user.counter
            self._least.push(user.counter, user)
        return self._last_left

    def _forget(self) -> None:
        floor = self.floor()
        while (least := self._by_absence.peek()) is not None and least[0] <= floor:
            self._by_absence.discard(least[1])
            del self._away[least[1].name]

    def audit(self, users: list[User]) -> None:
        """users: of each sample that has not ended."""
        assert {user.name: user for user in users} == self._here
        assert {user: users.count(user) for user in users} == {user: user.num_samples for user in self._here.values()}
        assert set(self._least) == set(self._here.values())
        weights = sum(user.weight for user in self._here.values())
        assert abs(self._total_weight - weights) <= 1e-6 * (1 + weights)
        assert set(self._by_absence) == set(self._away.values())
        assert not self._here.keys() & self._away.keys()
