"""Reads GGUF files, sharded or not, memory-mapped: their tensors as floats, as integers, or packed for the kernels."""

import math
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import machine
from surefoot.formats import W8_GROUPED, ggml, round_to, row_integers
from surefoot.ops.arrays import F32, U8, Arena
from surefoot.ops.backend import Backend, OpError, choose_variant
from surefoot.ops.weights import (
    BlockWeights,
    IntegerWeights,
    PackedForm,
    PackedWeights,
    Packing,
    WeightFormat,
    empty_packed,
    pack_blocks,
    pack_rows,
)
from surefoot.weights.gguf_header import GgufError, TensorInfo, all_tensors, open_shards
from surefoot.weights.metadata import MetadataError, check_gguf
from surefoot.weights.readahead import map_ahead

PANEL = 32  # rows that are packed together
MAX_WIDE_SHARE = 0.6  # of the memory: more is packed at the file's own width
READ_PLANES = ("avx512",)  # variants that make codes from their planes in registers
PART_WEIGHTS = 1 << 21  # weights converted at a time: scales and temporaries take a megabyte or two


class GgufFile:
    """A model's metadata and tensors. `path` may be any of its shards. Tensors are read on demand."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._shards = open_shards(self.path)
        self._arena = Arena()
        self.metadata: Mapping[str, Any] = self._shards[0].metadata
        with self._naming_file():
            check_gguf(self.metadata)
        self.tensors: Mapping[str, TensorInfo] = all_tensors(self.path, self._shards)

    def packing(self, variant: str | None = None) -> Packing:
        """How weights are packed for this variant; by default for that which this machine would choose."""
        return choose_packing(self._wide_bytes, Host(variant, self._memory_bytes))

    @cached_property
    def _memory_bytes(self) -> int:
        return machine.memory().limit_bytes

    @cached_property
    def _wide_bytes(self) -> int:
        return wide_bytes(self.tensors.values())

    def floats(self, name: str) -> F32:
        """The tensor as float32, whatever its type."""
        info = self.info(name)
        rows = self._rows(info)
        values = ggml.decode_floats(info.type, rows)
        if (factors := self._factors(_Rows(info, 0, len(rows)))) is not None:
            values *= factors
        # The tensor is read once, so its pages need not stay in memory.
        self._advise(mmap.MADV_DONTNEED, _Rows(info, 0, len(rows)))
        return values.reshape(info.shape)

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        """A matrix as the kernels' integers: the file's own codes, or float weights rounded to `float_format`."""
        info = self._with_dimensions(name, 2)
        return self._integers(_Rows(info, 0, info.shape[0]), float_format)

    def experts(self, name: str, float_format: WeightFormat = W8_GROUPED) -> list[IntegerWeights]:
        """A tensor [experts, rows, columns] as one matrix per expert."""
        info = self._with_dimensions(name, 3)
        num_experts, n, _ = info.shape
        return [self._integers(_Rows(info, expert * n, n), float_format) for expert in range(num_experts)]

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        """The matrices stacked by rows; neighbours of the same type become one packed matrix."""
        infos = [self._with_dimensions(name, 2) for name in names]
        return [
            self._pack(backend, [_Rows(info, 0, info.shape[0]) for info in run], float_format) for run in _runs(infos)
        ]

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        """Same as `fused`, for tensors [experts, rows, columns]: each list has one matrix per expert."""
        infos = [self._with_dimensions(name, 3) for name in names]
        return [
            [
                self._pack(backend, [_Rows(info, e * info.shape[1], info.shape[1]) for info in run], float_format)
                for e in range(infos[0].shape[0])
            ]
            for run in _runs(infos)
        ]

    def info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise GgufError(f"{self.path}: has no tensor {name}")
        return self.tensors[name]

    def _with_dimensions(self, name: str, num_dimensions: int) -> TensorInfo:
        info = self.info(name)
        if len(info.shape) != num_dimensions:
            raise GgufError(f"{self.path}: {name} has shape {info.shape}, not {num_dimensions} dimensions")
        return info

    def _rows(self, info: TensorInfo) -> U8:
        """The tensor's bytes in the mapped file, [rows, bytes of a row]."""
        raw = self._shards[info.shard].bytes[info.offset : info.offset + info.nbytes]
        return raw.reshape(-1, info.row_bytes)

    def _read(self, part: "_Rows") -> U8:
        return self._rows(part.info)[part.start : part.start + part.count]

    def _factors(self, part: "_Rows") -> F32 | None:
        """What the rows are multiplied by, [rows, 1]: an NVFP4 matrix has a scale of its own in another tensor, or one
        for each expert."""
        info, name = part.info, f"{part.info.name.removesuffix('weight')}scale"
        if info.type.name != "NVFP4" or name not in self.tensors:
            return None
        factors, num_rows = self.floats(name).reshape(-1, 1), math.prod(info.shape[:-1])
        if num_rows % len(factors):
            raise GgufError(f"{self.path}: {name} has {len(factors)} values for the {num_rows} rows of {info.name}")
        return np.repeat(factors, num_rows // len(factors), axis=0)[part.start : part.start + part.count]

    def _integers(self, part: "_Rows", float_format: WeightFormat) -> IntegerWeights:
        kind, rows = part.info.type, self._read(part)
        with self._naming(part.info):
            if kind.is_float:
                return _round(float_format, ggml.decode_floats(kind, rows))
            groups, factors = ggml.decode(kind, rows), self._factors(part)
            return row_integers(groups if factors is None else replace(groups, scales=groups.scales * factors))

    def _pack(self, backend: Backend, sections: Sequence["_Rows"], float_format: WeightFormat) -> PackedWeights:
        """The rows of all sections as one packed matrix."""
        n, k, packed, at = sum(section.count for section in sections), sections[0].info.shape[-1], None, 0
        for section in sections:
            with self._naming(section.info):
                parts = list(self._parts(section))
                for part, weights in zip(parts, self._converted(backend, parts, float_format), strict=True):
                    packed = packed or empty_packed(backend, weights.format, n, k, weights.has_offsets, self._arena)
                    if isinstance(weights, BlockWeights):
                        pack_blocks(backend, weights, packed, at)
                    else:
                        pack_rows(backend, weights, packed, at)
                    # The pages stay in the system's cache, but no longer count as this process's memory.
                    self._advise(mmap.MADV_DONTNEED, part)
                    at += part.count
        assert packed is not None
        return packed

    def _converted(
        self, backend: Backend, parts: Sequence["_Rows"], float_format: WeightFormat
    ) -> Iterator[BlockWeights | IntegerWeights]:
        """Each part as blocks with scales and offsets, or as rounded floats; later parts are converted while one is
        packed."""
        packing = self.packing(backend.variant)

        def convert(part: _Rows) -> BlockWeights | IntegerWeights:
            weights = _block_weights(part.info.type, self._read(part), float_format, packing)
            if isinstance(weights, BlockWeights) and (factors := self._factors(part)) is not None:
                assert isinstance(weights.scales, np.ndarray)  # NVFP4's are
                return replace(weights, scales=weights.scales * factors)
            return weights

        return map(convert, parts) if len(parts) == 1 else map_ahead(convert, parts, backend.threads)

    def _parts(self, section: "_Rows") -> Iterator["_Rows"]:
        """The section in parts of whole panels."""
        self._advise(mmap.MADV_WILLNEED, section)
        step = max(PANEL, PART_WEIGHTS // section.info.shape[-1] // PANEL * PANEL)
        end = section.start + section.count
        for first in range(section.start, end, step):
            yield _Rows(section.info, first, min(step, end - first))

    def _advise(self, advice: int, rows: "_Rows") -> None:
        """Advises the system about the pages of some rows."""
        info = rows.info
        first = (info.offset + rows.start * info.row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        last = info.offset + (rows.start + rows.count) * info.row_bytes
        self._shards[info.shard].data.madvise(advice, first, last - first)

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Adds the file's name to an error."""
        try:
            yield
        except MetadataError as wrong:
            raise MetadataError(f"{self.path}: {wrong}") from None

    @contextmanager
    def _naming(self, info: TensorInfo) -> Iterator[None]:
        """Adds the file's and the tensor's name to an error."""
        try:
            yield
        except (ValueError, OpError) as wrong:
            raise GgufError(f"{self.path}: {info.name}: {wrong}; fetch the file again, or take another") from None


@dataclass(frozen=True)
class _Rows:
    """Some rows of a tensor; the rows of experts are numbered consecutively."""

    info: TensorInfo  # the tensor
    start: int  # first row
    count: int  # rows


def _runs(infos: Sequence[TensorInfo]) -> list[list[TensorInfo]]:
    """Runs of tensors that can be one matrix: of the same type, and all but the last of whole panels."""
    runs: list[list[TensorInfo]] = []
    for info in infos:
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and (last.type, last.shape[-1]) == (info.type, info.shape[-1])
            and last.shape[-2] % PANEL == 0
        ):
            runs[-1].append(info)
        else:
            runs.append([info])
    return runs


def packed_forms(
    infos: Sequence[TensorInfo], packing: Packing, float_format: WeightFormat = W8_GROUPED
) -> list[PackedForm]:
    """What `GgufFile.fused` returns for matrices, or `fused_experts` for each expert, without reading a weight."""
    return [_packed_form(run, packing, float_format) for run in _runs(infos)]


def _packed_form(run: Sequence[TensorInfo], packing: Packing, float_format: WeightFormat) -> PackedForm:
    n, k = sum(info.shape[-2] for info in run), run[0].shape[-1]
    fmt, has_offsets = _packed_format(run[0].type, packing, float_format)
    return PackedForm(fmt, n, k, has_offsets)


def wide_bytes(infos: Iterable[TensorInfo]) -> int:
    """The memory of a file's matrices if they are packed wide."""
    matrices = [info for info in infos if len(info.shape) > 1 and not info.type.is_float]
    forms = ((info, packed_forms([info], Packing.WIDE)[0]) for info in matrices)
    return sum(form.outline().nbytes * math.prod(info.shape[:-2]) for info, form in forms)


@dataclass(frozen=True)
class Host:
    """What a machine that loads a file packs it for."""

    variant: str | None = None  # None: this machine's
    memory_bytes: int | None = None  # None: this machine's


def choose_packing(wide_bytes: int, host: Host) -> Packing:
    """What is fastest with the variant (docs/design/file-widths.md), unless weights would take most of the memory."""
    limit = machine.memory().limit_bytes if host.memory_bytes is None else host.memory_bytes
    if wide_bytes > MAX_WIDE_SHARE * limit:
        return Packing.NARROW
    return Packing.CODES if (host.variant or choose_variant()) in READ_PLANES else Packing.WIDE


@cache
def _packed_format(kind: ggml.BlockType, packing: Packing, float_format: WeightFormat) -> tuple[WeightFormat, bool]:
    """The format, and whether there are offsets: found by converting a block of zeros."""
    weights = _block_weights(kind, np.zeros((1, kind.nbytes), np.uint8), float_format, packing)
    return weights.format, weights.has_offsets


def _round(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    if not np.isfinite(weights).all():
        raise ValueError("weights are infinite or not a number")
    return round_to(fmt, weights)


def _block_weights(
    kind: ggml.BlockType, rows: U8, float_format: WeightFormat, packing: Packing
) -> BlockWeights | IntegerWeights:
    if kind.is_float:
        return _round(float_format, ggml.decode_floats(kind, rows))
    return ggml.block_weights(kind, rows, packing)
