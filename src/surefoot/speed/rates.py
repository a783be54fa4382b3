"""How fast a machine computes: its limits, and what part of them the kernels reach at each number of rows."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from surefoot.ops.weights import WeightFormat

# A kernel's time from the time that memory and the time that arithmetic would take alone: (a^p + b^p)^(1/p). They
# overlap except where both are about equal. 3 was chosen by eye between the maximum and the sum: docs/design/plan.md.
OVERLAP = 3.0
# Part of its own time that arithmetic takes at least, where memory alone explains what was measured.
MIN_ARITHMETIC = 0.25


@dataclass(frozen=True)
class EfficiencyCurve:
    """The part of the machine's peak that a kernel reaches, by number of rows."""

    rows: tuple[int, ...]  # rising
    values: tuple[float, ...]

    def at(self, rows: float) -> float:
        """Between two numbers of rows, interpolated over the logarithm; beyond them, as at the nearest."""
        index = bisect_left(self.rows, rows)
        if index == 0:
            return self.values[0]
        if index == len(self.rows):
            return self.values[-1]
        left, right = self.rows[index - 1], self.rows[index]
        share = math.log(rows / left) / math.log(right / left)
        return self.values[index - 1] + share * (self.values[index] - self.values[index - 1])


# Matrices in float32, such as routers: they are small, and not measured. Assumed.
FLOATS, FLOAT_CURVE = "f32", EfficiencyCurve((1,), (0.1,))


@dataclass(frozen=True)
class Efficiency:
    """What a variant's kernels reach. Measured on one machine, it is taken for all that run the variant."""

    linear: Mapping[str, EfficiencyCurve]  # by `form_name`, of the int8 peak
    attention: EfficiencyCurve  # of the int8 peak, by rows of a chunk
    operations_per_element: float  # time of norms, activations and rotations, as operations at the peak
    call_s: float  # until all threads have begun and ended an operation
    step_s: float  # of a step outside of operations: scheduler, Python
    row_s: float  # the same, for each sampled token

    def of(self, name: str) -> EfficiencyCurve:
        """The form's curve, or that of the form most like it."""
        if name in self.linear:
            return self.linear[name]
        if name == FLOATS:
            return FLOAT_CURVE
        alike = [other for other in self.linear if other.partition("g")[0] == name.partition("g")[0]]
        return self.linear[(alike or sorted(self.linear))[0]]


@dataclass(frozen=True)
class NodeLink:
    """What the threads of several NUMA nodes reach of each other's memory."""

    num_nodes: int = 1
    bytes_per_second: float = math.inf  # that a node's threads read of all other nodes together
    line_s: float = 0.0  # to fetch a cache line that another node wrote; 0: `call_s` was measured over all nodes

    @property
    def remote_share(self) -> float:
        """Of bytes that lie on all nodes evenly: those that are not a given node's."""
        return 1 - 1 / self.num_nodes


@dataclass(frozen=True)
class MachineRates:
    """The limits of a machine, as far as its threads may use them."""

    variant: str
    threads: int
    read_bytes_per_second: float  # of all threads together
    int8_operations_per_second: float  # of all threads together
    efficiency: Efficiency = field(repr=False)
    link: NodeLink = NodeLink()

    def of_one_node(self) -> "MachineRates":
        """Of the threads of one NUMA node, which read its memory only. Nodes are alike."""
        count = self.link.num_nodes
        return replace(
            self,
            threads=max(1, self.threads // count),
            read_bytes_per_second=self.read_bytes_per_second / count,
            int8_operations_per_second=self.int8_operations_per_second / count,
            link=NodeLink(),
        )


def form_name(fmt: WeightFormat | None, limbs: int) -> str:
    """A name for the products of weights in a format with inputs of `limbs` limbs."""
    return FLOATS if fmt is None else f"w{fmt.bits}x{fmt.limbs}a{limbs}g{fmt.group}"


def overlapped(*seconds: float) -> float:
    """The time of work that memory and arithmetic share."""
    return math.pow(sum(math.pow(part, OVERLAP) for part in seconds), 1 / OVERLAP)


def arithmetic_part(seconds: float, memory_seconds: float) -> float:
    """The time that arithmetic would take alone, from what was measured: the inverse of `overlapped`."""
    rest = math.pow(max(0.0, math.pow(seconds, OVERLAP) - math.pow(memory_seconds, OVERLAP)), 1 / OVERLAP)
    return max(rest, MIN_ARITHMETIC * seconds)


def limb_operations(fmt: WeightFormat | None, limbs: int) -> int:
    """int8 operations for a weight and a row: a multiplication and an addition for each pair of limbs."""
    return 2 * limbs * (1 if fmt is None else fmt.limbs)


def make_curve(points: Sequence[tuple[int, float]]) -> EfficiencyCurve:
    return EfficiencyCurve(tuple(rows for rows, _ in points), tuple(value for _, value in points))
