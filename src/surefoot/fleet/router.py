"""Chooses the replica that is predicted to give the first token soonest.

Predicted time = work that waits there, by the replica's own cost model + prompt tokens that it does not hold, each at
its own speed, or the time to fetch them from the replica that holds most of them, if that is less. There are no
thresholds and no weights: a hot prefix spreads by itself as soon as waiting for its holder takes longer than fetching
or computing it. A wrong prediction costs time, never a token.
"""

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.fleet.prefix_index import Depths, PrefixIndex

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ReplicaReport:
    """What a replica says of itself."""

    backlog_tokens: int  # prompt tokens that it has yet to compute
    token_ms: float  # predicted time for each
    added: Sequence[int] = ()  # names of blocks that it holds since the last report
    removed: Sequence[int] = ()  # of blocks that it holds no longer
    fetch_ms: float | None = None  # until another replica's first block comes; None: it fetches none
    fetch_token_ms: float = 0.0  # predicted time to fetch a token's keys and values


@dataclass(frozen=True)
class Choice:
    """The replica for a request."""

    replica: int
    predicted_ms: float  # to the first token
    num_cached: int  # tokens of the prompt that it holds
    holder: int | None = None  # another replica from which it had better fetch more of them
    num_held: int = 0  # tokens of the prompt that the holder has


class NoReplica(RuntimeError):
    """No replica can take the request."""


class ReplicaRouter:
    """Knows replicas by number. Reports come about once a second; work that was given out since the last one counts."""

    def __init__(self, block_size: int) -> None:
        self.index = PrefixIndex()
        self._block_size = block_size
        self._salts = np.zeros(0, np.uint64)
        self._token_ms = np.zeros(0)
        self._fetch_ms = np.zeros(0)  # infinite for a replica that fetches nothing
        self._fetch_token_ms = np.zeros(0)
        self._has_fetching = False  # whether any replica fetches
        self._backlog_ms = np.zeros(0)  # infinite for a replica that takes no requests
        self._given_ms = np.zeros(0)  # work given out that no report includes
        self._asked_ms = np.zeros(0)  # of that, what the report that is being made will include

    @property
    def num_replicas(self) -> int:
        return len(self._token_ms)

    # ---- replicas ----

    def join(self, name: str) -> int:
        """The number of a new replica, which takes no requests until its first report."""
        salt = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        self._salts = np.append(self._salts, np.uint64(salt))
        self._backlog_ms = np.append(self._backlog_ms, math.inf)
        self._fetch_ms = np.append(self._fetch_ms, math.inf)
        self._token_ms, self._fetch_token_ms, self._given_ms, self._asked_ms = (
            np.append(array, 0.0) for array in (self._token_ms, self._fetch_token_ms, self._given_ms, self._asked_ms)
        )
        return self.num_replicas - 1

    def begin_report(self, replica: int) -> None:
        """A report is asked for: it will include all work given out so far."""
        self._asked_ms[replica] = self._given_ms[replica]

    def report(self, replica: int, report: ReplicaReport) -> None:
        self._token_ms[replica] = report.token_ms
        self._fetch_ms[replica] = math.inf if report.fetch_ms is None else report.fetch_ms
        self._fetch_token_ms[replica] = report.fetch_token_ms
        self._has_fetching |= report.fetch_ms is not None
        self._backlog_ms[replica] = report.backlog_tokens * report.token_ms
        self._given_ms[replica] -= self._asked_ms[replica]
        self._asked_ms[replica] = 0.0
        self.index.add(replica, report.added)
        self.index.remove(replica, report.removed)

    def suspend(self, replica: int) -> None:
        """The replica drains or does not answer: it gets no request until its next report."""
        self._backlog_ms[replica] = math.inf

    def forget(self, replica: int) -> None:
        """The replica has lost what it held."""
        self.suspend(replica)
        self._given_ms[replica] = self._asked_ms[replica] = 0.0
        self.index.remove_replica(replica)

    # ---- requests ----

    def choose(self, names: Sequence[int], num_tokens: int, excluded: Collection[int] = ()) -> Choice:
        """names: of the prompt's full blocks. Raises NoReplica."""
        if not self.num_replicas:
            raise NoReplica("the fleet has no replicas")
        missing, depths = np.full(self.num_replicas, num_tokens), self.index.depths(names)
        for depth, holders in depths:
            missing[holders] = num_tokens - depth * self._block_size
        work_ms = missing * self._token_ms
        num_held, holder = self._deepest(depths, excluded) if self._has_fetching else (0, None)
        fetched_ms = self._fetched_ms(num_held, missing, num_tokens) if holder is not None else work_ms
        cost_ms = np.minimum(work_ms, fetched_ms) + self._backlog_ms + self._given_ms
        if excluded:
            cost_ms[list(excluded)] = math.inf
        replica = self._least(cost_ms, names)
        self._given_ms[replica] += min(work_ms[replica], fetched_ms[replica])
        choice = Choice(replica, float(cost_ms[replica]), num_tokens - int(missing[replica]))
        return replace(choice, holder=holder, num_held=num_held) if fetched_ms[replica] < work_ms[replica] else choice

    def _deepest(self, depths: Depths, excluded: Collection[int]) -> tuple[int, int | None]:
        """Tokens of the prompt that some replica holds and can give away, and the first such replica."""
        for depth, holders in reversed(depths):
            for holder in holders.tolist():
                if self._backlog_ms[holder] != math.inf and holder not in excluded:
                    return depth * self._block_size, holder
        return 0, None

    def _fetched_ms(self, num_held: int, missing: NDArray[np.int64], num_tokens: int) -> NDArray[np.float64]:
        """Work for the prompt where each replica fetches what it lacks of the first `num_held` tokens."""
        num_fetched = num_held - (num_tokens - missing)
        fetched_ms = self._fetch_ms + num_fetched * self._fetch_token_ms + (num_tokens - num_held) * self._token_ms
        return np.where(num_fetched > 0, fetched_ms, math.inf)

    def _least(self, cost_ms: NDArray[np.float64], names: Sequence[int]) -> int:
        """Of equals, the first by a hash of prompt and replica, so that gateways agree without talking."""
        best = int(cost_ms.argmin())
        if cost_ms[best] == math.inf:
            raise NoReplica("no replica takes requests")
        (equals,) = np.nonzero(cost_ms == cost_ms[best])
        if len(equals) == 1:
            return best
        prompt = np.uint64(names[0] if names else 0)
        mixed = (self._salts[equals] ^ prompt) * _GOLDEN
        return int(equals[(mixed ^ (mixed >> np.uint64(29))).argmax()])
