"""Tokens from logits: a function of a row's logits, parameters, seed and position alone."""

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
    """Parameters of each row, applied in the order of fields. Off: temperature 0 (greedy), top_k 0, top_p 1, min_p 0.

    `positions` is the absolute position of the token to be drawn: with the seed it names the noise.
    """

    temperature: F32
    top_k: I64
    top_p: F32
    min_p: F32
    seeds: U64
    positions: I64

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
        """Arrays from numbers (the same for every row) or from one number a row."""
        given = (temperature, top_k, top_p, min_p, seeds, positions)
        arrays = (np.array(value, dtype) for value, dtype in zip(given, DTYPES.values(), strict=True))
        return cls(*(array if array.ndim else np.full(rows, array) for array in arrays))


@dataclass(frozen=True)
class Sampled:
    """tokens: int64 [rows], -1 where the largest logit is not finite; logprobs: float32 [rows], before any filter."""

    tokens: I64
    logprobs: F32


@dataclass(frozen=True)
class TopLogprobs:
    """ids: int64 [rows, count], best first, ties to the lower id; logprobs: float32 [rows, count]."""

    ids: I64
    logprobs: F32


def sample(backend: Backend, logits: F32, rows: SamplingRows, out: Sampled | None = None) -> Sampled:
    """One token per row of logits [rows, vocab], with its logprob."""
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
    """`sample` without logprobs, step after step: arrays and arguments stay where they are. `rows` is for the caller to
    fill, up to the number of rows that are drawn from."""

    def __init__(self, backend: Backend, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows = SamplingRows.of(num_rows)
        self._tokens = empty((num_rows,), np.int64)
        self._args = _arguments(self.rows, self._tokens, None)
        with backend.record() as self._program:
            backend.run("sample", self._args, self.rows, self._tokens)

    def draw(self, logits: F32) -> list[int]:
        """A token for each row of logits [rows, vocab]."""
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
