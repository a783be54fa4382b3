"""Which part of a user's requests is at which replica.

A replica multiplies the user's weight by its part. So a user's weights over all replicas add up to the user's own, and
who floods the whole fleet gets no more of it than a user of one replica.
"""

from collections import Counter


class UserSpread:
    """Requests in flight, as far as this gateway has forwarded them."""

    def __init__(self) -> None:
        self._replicas: dict[str, Counter[int]] = {}  # requests by user and replica

    def __len__(self) -> int:
        """Users with requests in flight."""
        return len(self._replicas)

    def enter(self, user: str, replica: int) -> float:
        """The user has one more request at the replica. Returns the part of the user's requests that is there now."""
        counts = self._replicas.setdefault(user, Counter())
        counts[replica] += 1
        return counts[replica] / counts.total()

    def leave(self, user: str, replica: int) -> None:
        counts = self._replicas[user]
        counts[replica] -= 1
        if not counts[replica]:
            del counts[replica]
        if not counts:
            del self._replicas[user]
