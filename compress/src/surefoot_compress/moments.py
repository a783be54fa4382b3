"""Statistics of a layer's inputs over calibration text: second moments and largest values, by group of matrices."""

from dataclasses import dataclass, field

import numpy as np

from surefoot.ops.arrays import F32
from surefoot_compress.forward import GROUPS
from surefoot_compress.lazy_torch import Tensor, torch

STRIP = 512  # rows of X'X computed at once
FIRST = {group[0]: group for group in GROUPS}  # each group by its first matrix


@dataclass(frozen=True)
class Moments:
    """Statistics of one group's inputs X [rows, k]."""

    second: F32  # X'X / rows, [k, k]
    largest: F32  # |x| of each column, [k]
    num_rows: int  # that were summed up

    @property
    def importance(self) -> F32:
        """The mean square of each column, [k]."""
        return np.ascontiguousarray(np.diag(self.second))

    def scaled(self, scales: F32) -> "Moments":
        """The moments of the inputs divided by `scales`."""
        return Moments(self.second / np.outer(scales, scales), self.largest / scales, self.num_rows)


@dataclass
class MomentsCollector:
    """A hook that sums up the inputs of the first matrix of each group."""

    second: dict[str, Tensor] = field(default_factory=dict)  # sums of X'X, by the first matrix of each group
    largest: dict[str, Tensor] = field(default_factory=dict)  # |x| of each column, likewise
    num_rows: int = 0  # seen so far

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
        """By matrix; the matrices of a group share one object."""
        by_first = {
            first: Moments((_mirrored(sums) / self.num_rows).numpy(), self.largest[first].numpy(), self.num_rows)
            for first, sums in self.second.items()
        }
        return {name: by_first[first] for first, group in FIRST.items() for name in group}


def _add_products(sums: Tensor, rows: Tensor) -> None:
    """Adds X'X of the rows X, strip by strip up to the diagonal: the rest mirrors it, so nearly half is saved."""
    for start in range(0, len(sums), STRIP):
        end = start + STRIP
        sums[start:end, :end].addmm_(rows[:, start:end].T, rows[:, :end])


def _mirrored(sums: Tensor) -> Tensor:
    """The full matrix from its lower strips, in place."""
    for start in range(0, len(sums), STRIP):
        end = start + STRIP
        sums[:start, start:end] = sums[start:end, :start].T
    return sums
