"""What calibration leaves of a layer's inputs: second moments and largest values, by group of matrices."""

from dataclasses import dataclass, field

import numpy as np

from surefoot.compress.forward import GROUPS
from surefoot.compress.later import Tensor, torch
from surefoot.ops.arrays import F32

STRIP = 512  # rows of the products that are made at once
FIRST = {group[0]: group for group in GROUPS}


@dataclass(frozen=True)
class Moments:
    """Of one group's inputs: X'X / rows [k, k], the largest |x| of each column, and how many rows there were."""

    second: F32
    largest: F32
    num_rows: int

    @property
    def importance(self) -> F32:
        return np.ascontiguousarray(np.diag(self.second))

    def scaled(self, scales: F32) -> "Moments":
        """As if the inputs had been divided."""
        return Moments(self.second / np.outer(scales, scales), self.largest / scales, self.num_rows)


@dataclass
class Collector:
    """A tap that sums up what the first matrix of each group reads."""

    second: dict[str, Tensor] = field(default_factory=dict)
    largest: dict[str, Tensor] = field(default_factory=dict)
    num_rows: int = 0

    def __call__(self, name: str, x: Tensor, _: Tensor) -> None:
        if name not in FIRST:
            return
        rows = x.detach().reshape(-1, x.shape[-1])
        if name not in self.second:
            width = rows.shape[1]
            self.second[name], self.largest[name] = torch.zeros(width, width), torch.zeros(width)
        _add_products(self.second[name], rows)
        torch.maximum(self.largest[name], rows.abs().amax(dim=0), out=self.largest[name])
        self.num_rows += len(rows) if name == "attn_q" else 0

    def moments(self) -> dict[str, Moments]:
        """By matrix; the members of a group share theirs."""
        made = {
            first: Moments((_mirrored(sums) / self.num_rows).numpy(), self.largest[first].numpy(), self.num_rows)
            for first, sums in self.second.items()
        }
        return {name: made[first] for first, group in FIRST.items() for name in group}


def _add_products(sums: Tensor, rows: Tensor) -> None:
    """rows' rows, strip by strip up to the diagonal: little more than half the work, since the rest mirrors it."""
    for start in range(0, len(sums), STRIP):
        end = start + STRIP
        sums[start:end, :end].addmm_(rows[:, start:end].T, rows[:, :end])


def _mirrored(sums: Tensor) -> Tensor:
    """In place."""
    for start in range(0, len(sums), STRIP):
        end = start + STRIP
        sums[:start, start:end] = sums[start:end, :start].T
    return sums
