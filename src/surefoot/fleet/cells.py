"""A fleet too large for one router: cells of machines, each with a router of its own, and users spread over them.

A cell is a fleet by itself. A user's home is the cell with the highest hash of user and cell, so that gateways agree
without talking, and a cell that goes or comes moves its own users alone. Nothing else is shared.
"""

import hashlib
from collections.abc import Callable, Sequence

from surefoot.fleet.router import ReplicaReport, ReplicaRouter
from surefoot.fleet.simulation import Asked, FleetShape, SimulatedReplica


def home_cell(user: str, cells: Sequence[str]) -> int:
    """The number of the user's cell."""

    def weight(number: int) -> bytes:
        return hashlib.blake2b(f"{cells[number]}\0{user}".encode(errors="surrogatepass"), digest_size=8).digest()

    return max(range(len(cells)), key=weight)


class CellPolicy:
    """A policy of the simulation that knows cells of equal size. It takes replicas' reports too."""

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
