"""ggml's block types as quantisation grids. Scales are rounded as the type stores them, then read back from the record,
so that codes are assigned against the levels that a reader of the file will see."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.formats import ggml
from surefoot.formats.ggml import BlockType
from surefoot.formats.ggml_fields import Blocks
from surefoot.ops.arrays import F32, U8
from surefoot_compress.ggml_encode import PUT, put_codes, put_parameters
from surefoot_compress.grids import QuantGrid, by_group
from surefoot_compress.levels import Levels
from surefoot_compress.search import best_power, safe, search_affine, search_scale


@dataclass(frozen=True)
class GgmlFormat:
    """One of ggml's block types, as a Format."""

    kind: BlockType  # its layout in a file

    @property
    def name(self) -> str:
        return self.kind.name

    @cached_property
    def values(self) -> tuple[int, ...]:
        low, high = self.kind.span
        return self.kind.values or tuple(range(low, high + 1))

    @property
    def with_offsets(self) -> bool:
        return self.name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")

    def suits(self, columns: int) -> bool:
        return columns % self.kind.block == 0

    def nbytes(self, n: int, k: int) -> int:
        return n * (k // self.kind.block) * self.kind.nbytes

    def fit(self, weights: F32, importance: F32 | None) -> QuantGrid:
        x = by_group(weights, self.kind.group)
        if importance is None:
            return self.grid(self.parameters(*self._ends(x)))
        return self.grid(self.parameters(*self._search(x, importance.reshape(1, -1, self.kind.group))))

    def _ends(self, x: F32) -> tuple[F32, F32 | None]:
        """Scales and offsets from the ends of each group. The weight with the largest magnitude, of either sign, takes
        the longer end of the levels."""
        low, high = self.kind.span
        if self.with_offsets:
            low_end = np.minimum(x.min(axis=2), 0)
            return safe((x.max(axis=2) - low_end) / np.float32(high - low)), low_end
        top = np.take_along_axis(x, np.abs(x).argmax(axis=2)[..., None], axis=2)[..., 0]
        ends = np.abs(top) / high if self.one_sign else top / low
        return safe(ends.astype(np.float32)), None

    @property
    def one_sign(self) -> bool:
        """Whether scales are never negative: an exponent has no sign, and symmetric levels need none."""
        return self.name in ("Q8_0", "MXFP4")

    def _search(self, x: F32, weigh: F32) -> tuple[F32, F32 | None]:
        low, high = self.kind.span
        if self.with_offsets:
            scales, offsets = search_affine(high - low, x, weigh, np.minimum(x.min(axis=2), 0), x.max(axis=2))
            # K-quants have no positive offsets.
            return scales, np.minimum(offsets, 0) if self.name.endswith("K") else offsets
        top = safe(np.abs(x).max(axis=2) / np.float32(max(-low, high)))
        if self.name == "MXFP4":
            return best_power(Levels.of(self.values), x, weigh, top), None
        return search_scale(Levels.of(self.values), x, weigh, top, (1,) if self.one_sign else (1, -1)), None

    def parameters(self, scales: F32, offsets: F32 | None) -> Blocks:
        """Block records with rounded scales and offsets, and zeros for codes."""
        n = len(scales)
        shape = n, -1, self.kind.block // self.kind.group
        blocks = np.zeros((n, scales.shape[1] // shape[2]), self.kind.record)
        put_parameters(self.kind, blocks, scales.reshape(shape), None if offsets is None else offsets.reshape(shape))
        return blocks

    def grid(self, blocks: Blocks) -> QuantGrid:
        scales, offsets = ggml.scales_and_offsets(self.kind, blocks)
        # A group whose scale is rounded to zero holds its offset alone, whatever its codes.
        nonzero = np.where(scales == 0, np.float32(1e-12), scales).astype(np.float32)
        return QuantGrid(Levels.of(self.values), self.kind.group, nonzero, offsets)

    def encode(self, grid: QuantGrid, codes: U8) -> U8:
        """Rows of the file's bytes. The grid must be this format's own, so that its parameters survive rounding."""
        values = np.asarray(self.values)
        blocks = self.parameters(np.where(np.abs(grid.scales) <= 1e-12, 0, grid.scales), grid.offsets)
        first = {int(value): number for number, value in reversed(list(enumerate(values)))}
        stored = np.array([first[int(level)] for level in grid.levels.values])
        if self.kind.values is None and self.kind.base == 0:
            stored = grid.levels.values.astype(np.int8).view(np.uint8)
        put_codes(self.kind, blocks, stored.astype(np.uint8)[codes].reshape(*blocks.shape, self.kind.block))
        return blocks.view(np.uint8).reshape(len(codes), -1)


GGML = {name: GgmlFormat(ggml.NAMES[name]) for name in PUT}
