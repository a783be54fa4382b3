"""Samples tokens from logits. A token is a function of its row's logits, parameters, seed and position alone."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend

U64 = NDArray[np.uint64]

DTYPES = {
    "temperature": np.float32,
    "top_k": np.int64,
    "top_p": np.float32,
    "min_p": np.float32,
    "seeds": np.uint64,
    "positions": np.int64,
}


@dataclass(frozen=True)
class SamplingRows:
    """Parameters of each row, applied in the order of the fields."""

    temperature: F32  # 0: greedy
    top_k: I64  # 0: off
    top_p: F32  # 1: off
    min_p: F32  # 0: off
    seeds: U64
    positions: I64  # of the token to be drawn; seed and position determine the noise

    @classmethod
    def of(
        cls,
        rows: int,
        temperature: float | Sequence[float] = 0.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        min_p: float | Sequence[float] = 0.0,
        seeds: int | Sequence[int] = 0,
        positions: int | Sequence[int] = 0,
    ) -> "SamplingRows":
        """Parameters for `rows` rows. A single number applies to all rows."""
        values = (temperature, top_k, top_p, min_p, seeds, positions)
        arrays = (np.array(value, dtype) for value, dtype in zip(values, DTYPES.values(), strict=True))
        return cls(*(array if array.ndim else np.full(rows, array) for array in arrays))


@dataclass(frozen=True)
class Sampled:
    """The drawn token of each row."""

    tokens: I64  # [rows]; -1 if the largest logit is not finite
    logprobs: F32  # [rows], before any filter


@dataclass(frozen=True)
class TopLogprobs:
    """The most likely tokens of each row."""

    ids: I64  # [rows, count], best first, ties to the lower id
    logprobs: F32  # [rows, count]


def sample(backend: Backend, logits: F32, rows: SamplingRows, out: Sampled | None = None) -> Sampled:
    """Draws a token from each row of logits [rows, vocab]."""
    check("logits", logits, np.float32, None, None)
    num_rows = len(logits)
    for field in fields(rows):
        check(field.name, getattr(rows, field.name), DTYPES[field.name], num_rows)
    if out is None:
        out = Sampled(empty((num_rows,), np.int64), empty((num_rows,), np.float32))
    check("out.tokens", out.tokens, np.int64, num_rows)
    check("out.logprobs", out.logprobs, np.float32, num_rows)
    args = _arguments(rows, out.tokens, out.logprobs)
    _point_at(args, logits)
    backend.run("sample", args, logits, rows, out)
    return out


class Sampling:
    """`sample` without logprobs, for many steps: arrays and arguments are reused. Before each draw, the caller fills
    `rows` for the rows of the draw."""

    def __init__(self, backend: Backend, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows = SamplingRows.of(num_rows)
        self._tokens = empty((num_rows,), np.int64)
        self._args = _arguments(self.rows, self._tokens, None)
        with backend.record() as self._program:
            backend.run("sample", self._args, self.rows, self._tokens)

    def draw(self, logits: F32) -> list[int]:
        """Draws a token from each row of logits [rows, vocab]."""
        num_rows = len(logits)
        check("logits", logits, np.float32, num_rows, None)
        if num_rows > self.num_rows:
            raise ValueError(f"there is room for {self.num_rows} rows, not for {num_rows}")
        _point_at(self._args, logits)
        self._program.run()
        tokens: list[int] = self._tokens[:num_rows].tolist()
        return tokens


def _arguments(rows: SamplingRows, tokens: I64, logprobs: F32 | None) -> abi.SampleArgs:
    return abi.SampleArgs(
        None, pointer(rows.temperature), pointer(rows.top_p), pointer(rows.min_p), pointer(rows.top_k),
        pointer(rows.seeds), pointer(rows.positions), pointer(tokens), pointer(logprobs),
    )  # fmt: skip


def _point_at(args: abi.SampleArgs, logits: F32) -> None:
    args.logits, args.logits_stride = pointer(logits), row_stride(logits)
    args.rows, args.vocab = logits.shape


def top_logprobs(backend: Backend, logits: F32, count: int) -> TopLogprobs:
    """The `count` most likely ids of each row."""
    check("logits", logits, np.float32, None, None)
    rows, vocab = logits.shape
    out = TopLogprobs(empty((rows, count), np.int64), empty((rows, count), np.float32))
    args = abi.TopLogprobsArgs(
        pointer(logits), pointer(out.ids), pointer(out.logprobs), rows, vocab, row_stride(logits), count
    )
    backend.run("top_logprobs", args, logits, out)
    return out
