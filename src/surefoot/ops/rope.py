"""Rotary position embedding: inverse frequencies of every scaling, tables of cos and sin, the rotation."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Literal

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, check, empty, pointer
from surefoot.ops.backend import Backend

PI = Decimal("3.14159265358979323846264338327950288419716939937510")
DIGITS = 40


@dataclass(frozen=True)
class LinearScaling:
    """All frequencies divided by the factor."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Low frequencies divided by the factor, high ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def __post_init__(self) -> None:
        if not self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor}, where more than low_freq_factor, "
                f"{self.low_freq_factor}, is allowed"
            )


@dataclass(frozen=True)
class YarnScaling:
    """Lanes that turn less than beta_slow times in the original context are divided by the factor, those that turn more
    than beta_fast times kept, a ramp between; cos and sin are multiplied by the attention factor."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True  # the ramp's ends at whole lanes


@dataclass(frozen=True)
class FactorScaling:
    """Each frequency divided by a factor of its own, as files list them; cos and sin times the attention factor."""

    factors: tuple[float, ...]
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if not all(0 < factor < math.inf for factor in self.factors):
            raise ValueError("the factors of rotary frequencies must be positive numbers: the file may be damaged")


Scaling = LinearScaling | Llama3Scaling | YarnScaling | FactorScaling


@dataclass(frozen=True)
class RopeForm:
    """How heads rotate. dim is the number of lanes that do: all of the head's, or the first of them (partial)."""

    dim: int
    theta: float = 10000.0
    scaling: Scaling | None = None
    pairing: Literal["halves", "neighbours"] = "halves"

    def __post_init__(self) -> None:
        if self.dim <= 0 or self.dim % 2:
            raise ValueError(f"the rotated lanes must be an even number, not {self.dim}")


def inverse_frequencies(form: RopeForm) -> F32:
    """float32 [dim / 2]. Computed in decimal arithmetic, which no machine's libm can change."""
    with localcontext() as context:
        context.prec = DIGITS
        step = Decimal(form.theta).ln() * 2 / form.dim
        plain = [(-step * i).exp() for i in range(form.dim // 2)]
        match form.scaling:
            case None:
                scaled = plain
            case LinearScaling(factor):
                scaled = [freq / Decimal(factor) for freq in plain]
            case Llama3Scaling() as llama3:
                scaled = [_llama3(freq, llama3) for freq in plain]
            case YarnScaling() as yarn:
                scaled = _yarn(plain, form, yarn)
            case FactorScaling(factors):
                scaled = [freq / Decimal(factor) for freq, factor in zip(plain, factors, strict=True)]
        return np.array([float(freq) for freq in scaled], np.float32)


def _llama3(freq: Decimal, scaling: Llama3Scaling) -> Decimal:
    low, high = Decimal(scaling.low_freq_factor), Decimal(scaling.high_freq_factor)
    turns = scaling.original_context * freq / (2 * PI)
    kept = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
    return freq * (kept + (1 - kept) / Decimal(scaling.factor))


def _yarn(plain: list[Decimal], form: RopeForm, scaling: YarnScaling) -> list[Decimal]:
    low = _lane_of_turns(Decimal(scaling.beta_fast), form, scaling)
    high = _lane_of_turns(Decimal(scaling.beta_slow), form, scaling)
    if scaling.truncate:
        low, high = low.to_integral_value("ROUND_FLOOR"), high.to_integral_value("ROUND_CEILING")
    low, high = max(low, Decimal(0)), min(high, Decimal(form.dim - 1))
    if low == high:
        high += Decimal("0.001")
    divided = [min(max((i - low) / (high - low), Decimal(0)), Decimal(1)) for i in range(len(plain))]
    return [freq * (1 - part + part / Decimal(scaling.factor)) for freq, part in zip(plain, divided, strict=True)]


def _lane_of_turns(turns: Decimal, form: RopeForm, scaling: YarnScaling) -> Decimal:
    """Which lane (not a whole number) turns that often in the original context."""
    return form.dim * (scaling.original_context / (turns * 2 * PI)).ln() / (2 * Decimal(form.theta).ln())


def attention_factor(form: RopeForm) -> float:
    """What multiplies cos and sin: 1 but for yarn and listed factors."""
    scaling = form.scaling
    if isinstance(scaling, FactorScaling):
        return scaling.attention_factor
    if not isinstance(scaling, YarnScaling):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        return float(_mscale(scaling.factor, scaling.mscale) / _mscale(scaling.factor, scaling.mscale_all_dim))
    return magnitude_scale(scaling.factor)


def magnitude_scale(factor: float, mscale: float = 1.0) -> float:
    """Yarn's growth of magnitudes with the factor of a longer context."""
    return float(_mscale(factor, mscale))


def _mscale(factor: float, mscale: float) -> Decimal:
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal("0.1") * Decimal(mscale) * Decimal(factor).ln() + 1 if factor > 1 else Decimal(1)


@dataclass(frozen=True)
class RopeTable:
    """cos and sin, float32 [rows, pairs]: one row per token."""

    cos: F32
    sin: F32


def rope_table(
    backend: Backend,
    positions: I64,
    inv_freq: F32,
    scale: float = 1.0,
    row_scales: F32 | None = None,
    out: RopeTable | None = None,
) -> RopeTable:
    """The table of these positions; scale is the attention factor, row_scales one more factor for each row."""
    check("positions", positions, np.int64, None)
    check("inv_freq", inv_freq, np.float32, None)
    shape = positions.size, inv_freq.size
    if out is None:
        out = RopeTable(empty(shape, np.float32), empty(shape, np.float32))
    _check_table(out, *shape)
    if row_scales is not None:
        check("row_scales", row_scales, np.float32, positions.size)
    args = abi.RopeTableArgs(
        pointer(positions), pointer(inv_freq), pointer(out.cos), pointer(out.sin), pointer(row_scales), *shape, scale
    )  # fmt: skip
    backend.run("rope_table", args, positions, inv_freq, row_scales, out)
    return out


def rope(backend: Backend, x: F32, table: RopeTable, pairing: Literal["halves", "neighbours"] = "halves") -> None:
    """Rotate x, float32 [rows, heads, head_dim], in place: row by row with the table's rows."""
    check("x", x, np.float32, None, None, None)
    rows, heads, head_dim = x.shape
    if x.size and x.strides[1] != head_dim * x.itemsize:
        raise ValueError("the heads of a row must lie one after another")
    pairs = table.cos.shape[1]
    _check_table(table, rows, pairs)
    stride = x.strides[0] // x.itemsize if rows > 1 else heads * head_dim
    args = abi.RopeArgs(
        pointer(x), pointer(table.cos), pointer(table.sin), rows, heads, head_dim, pairs, stride,
        int(pairing == "neighbours"),
    )  # fmt: skip
    backend.run("rope", args, x, table)


def _check_table(table: RopeTable, rows: int, pairs: int) -> None:
    for name, array in (("cos", table.cos), ("sin", table.sin)):
        check(name, array, np.float32, rows, pairs)
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous")
