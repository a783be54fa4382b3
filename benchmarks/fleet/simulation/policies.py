"""Ways to choose a replica, to be compared in simulated time: the fleet's own, an oracle's, and others'."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np

from benchmarks.fleet.simulation.cells import home_cell
from benchmarks.fleet.simulation.routing import Asked, FleetShape, SimulatedReplica
from surefoot.fleet.prefix_index import PrefixIndex
from surefoot.fleet.router import ReplicaReport, ReplicaRouter


class PredictedPolicy:
    """The fleet's own router, which knows what reports say."""

    def __init__(self, shape: FleetShape, clock: Callable[[], float] = lambda: 0.0) -> None:
        """clock: to time decisions by, in seconds."""
        self.router = ReplicaRouter(shape.block_size)
        for number in range(shape.num_replicas):
            self.router.join(f"replica {number}")
        self._clock = clock
        self.decision_s: list[float] = []

    def choose(self, asked: Asked, replicas: Sequence[SimulatedReplica], now: float) -> int:
        began = self._clock()
        choice = self.router.choose(asked.names, asked.num_tokens)
        self.decision_s.append(self._clock() - began)
        return choice.replica


class CellPolicy:
    """Cells of equal size, each with a router of its own. It takes replicas' reports too."""

    def __init__(self, shape: FleetShape, cell_size: int, clock: Callable[[], float] = lambda: 0.0) -> None:
        """clock: to time decisions by, in seconds."""
        self._size = cell_size
        self._cells = [f"cell {number}" for number in range(-(-shape.num_replicas // cell_size))]
        self.routers = [ReplicaRouter(shape.block_size) for _ in self._cells]
        for number in range(shape.num_replicas):
            self.routers[number // cell_size].join(f"replica {number}")
        self._clock = clock
        self.decision_s: list[float] = []

    def choose(self, asked: Asked, replicas: Sequence[SimulatedReplica], now: float) -> int:
        began = self._clock()
        cell = home_cell(str(asked.user), self._cells)
        choice = self.routers[cell].choose(asked.names, asked.num_tokens)
        self.decision_s.append(self._clock() - began)
        return cell * self._size + choice.replica

    def begin_report(self, replica: int) -> None:
        self.routers[replica // self._size].begin_report(replica % self._size)

    def report(self, replica: int, report: ReplicaReport) -> None:
        self.routers[replica // self._size].report(replica % self._size, report)


class OraclePolicy:
    """The same rule with full knowledge: every replica's tree and queue at the moment of choice."""

    def __init__(self, shape: FleetShape, trees: PrefixIndex) -> None:
        self._shape = shape
        self._trees = trees

    def choose(self, asked: Asked, replicas: Sequence[SimulatedReplica], now: float) -> int:
        missing = np.full(len(replicas), asked.num_tokens)
        for depth, holders in self._trees.depths(asked.names):
            missing[holders] = asked.num_tokens - depth * self._shape.block_size
        token_s = np.array([replica.token_ms for replica in replicas]) / 1000
        waiting_s = np.array([replica.free_at for replica in replicas]) - now
        return int((np.maximum(waiting_s, 0.0) + missing * token_s).argmin())


class RoundRobinPolicy:
    def __init__(self) -> None:
        self._next = count()

    def choose(self, asked: Asked, replicas: Sequence[SimulatedReplica], now: float) -> int:
        return next(self._next) % len(replicas)


class AffinityPolicy:
    """A prefix-affinity router with thresholds, in the manner that Ray Serve's documentation describes its own.

    If queues differ by less than `imbalance` requests, the replica with the longest match of what was routed to it
    before, if at least `match` of the prompt matches, else the replica with the smallest tree; otherwise the shorter
    queue of two at random. Queues are known exactly, what replicas have dropped is not.
    """

    def __init__(self, imbalance: int = 10, match: float = 0.1, seed: int = 0) -> None:
        self._imbalance = imbalance
        self._match = match
        self._rng = random.Random(seed)
        self._routed: dict[int, set[int]] = {}  # replicas by block
        self._sizes: dict[int, int] = {}  # blocks by replica

    def choose(self, asked: Asked, replicas: Sequence[SimulatedReplica], now: float) -> int:
        chosen = self._choose(asked, replicas)
        for name in asked.names:
            holders = self._routed.setdefault(name, set())
            if chosen not in holders:
                holders.add(chosen)
                self._sizes[chosen] = self._sizes.get(chosen, 0) + 1
        return chosen

    def _choose(self, asked: Asked, replicas: Sequence[SimulatedReplica]) -> int:
        lengths = [replica.num_queued + replica.num_answering for replica in replicas]
        if max(lengths) - min(lengths) >= self._imbalance:
            return min(
                self._rng.sample(range(len(replicas)), min(2, len(replicas))), key=lambda number: lengths[number]
            )
        depth, holders = 0, set[int]()
        for level, matching in enumerate(self._matches(asked.names), 1):
            depth, holders = level, matching
        if asked.names and depth / len(asked.names) >= self._match:
            return min(holders, key=lambda number: lengths[number])
        return min(range(len(replicas)), key=lambda number: self._sizes.get(number, 0))

    def _matches(self, names: Sequence[int]) -> Iterator[set[int]]:
        """The replicas that were sent all blocks so far, while there are any."""
        holders: set[int] | None = None
        for name in names:
            routed = self._routed.get(name, set())
            holders = routed if holders is None else holders & routed
            if not holders:
                return
            yield holders
