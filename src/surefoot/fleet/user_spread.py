"""Which part of a user's requests is at which replica.

A replica multiplies the user's weight by its part. So a user's weights over all replicas add up to the user's own, and
who floods the whole fleet gets no more of it than a user of one replica.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class UserSpread:
    """Requests in flight, as far as this gateway has handed them over."""

    def __init__(self) -> None:
        self._replicas: dict[str, Counter[int]] = {}  # requests by user and replica

    def __len__(self) -> int:
        """Users with requests in flight."""
        return len(self._replicas)

    @contextmanager
    def request(self, user: str, replica: int) -> Iterator[float]:
        """The user has one more request at the replica. Yields the part of the user's requests that is there now."""
        counts = self._replicas.setdefault(user, Counter())
        counts[replica] += 1
        try:
            yield counts[replica] / counts.total()
        finally:
            counts[replica] -= 1
            if not counts[replica]:
                del counts[replica]
            if not counts:
                del self._replicas[user]
