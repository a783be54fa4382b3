"""A stand-in for a tensor of a checkpoint."""

from dataclasses import dataclass

from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class InMemory:
    """A tensor whose values are in memory."""

    array: F32  # its values

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def floats(self, rows: slice = slice(None)) -> F32:
        return self.array[rows]
