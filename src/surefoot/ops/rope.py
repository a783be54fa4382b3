"""Rotary position embedding: inverse frequencies with any scaling, tables of cos and sin, and the rotation."""

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
    """Divides all frequencies by the factor."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Divides low frequencies by the factor and keeps high frequencies, with a ramp in between."""

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
    """Divides the frequencies of lanes that rotate less than beta_slow times in the original context by the factor, and
    keeps those of lanes that rotate more than beta_fast times, with a ramp in between. Multiplies cos and sin by the
    attention factor."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True  # rounds the ramp's ends to whole lanes


@dataclass(frozen=True)
class FactorScaling:
    """Divides each frequency by its own factor, as listed in the model's file. Multiplies cos and sin by the attention
    factor."""

    factors: tuple[float, ...]
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if not all(0 < factor < math.inf for factor in self.factors):
            raise ValueError("the factors of rotary frequencies must be positive numbers: the file may be damaged")


Scaling = LinearScaling | Llama3Scaling | YarnScaling | FactorScaling


@dataclass(frozen=True)
class RopeForm:
    """How heads rotate."""

    dim: int  # rotated lanes: all of the head's, or the first of them (partial)
    theta: float = 10000.0  # base of the frequencies
    scaling: Scaling | None = None
    pairing: Literal["halves", "neighbours"] = "halves"  # lanes that rotate together

    def __post_init__(self) -> None:
        if self.dim <= 0 or self.dim % 2:
            raise ValueError(f"the rotated lanes must be an even number, not {self.dim}")


def inverse_frequencies(form: RopeForm) -> F32:
    """The inverse frequencies [dim / 2]. Decimal arithmetic makes them independent of the machine's libm."""
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
    """The lane (a fractional number) that rotates `turns` times in the original context."""
    return form.dim * (scaling.original_context / (turns * 2 * PI)).ln() / (2 * Decimal(form.theta).ln())


def attention_factor(form: RopeForm) -> float:
    """The factor on cos and sin: 1 except with YaRN and listed factors."""
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
    """YaRN's scale of magnitudes for a context that is longer by `factor`."""
    return float(_mscale(factor, mscale))


def _mscale(factor: float, mscale: float) -> Decimal:
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal("0.1") * Decimal(mscale) * Decimal(factor).ln() + 1 if factor > 1 else Decimal(1)


@dataclass(frozen=True)
class RopeTable:
    """cos and sin of each token's angles."""

    cos: F32  # [rows, pairs]
    sin: F32  # [rows, pairs]


def rope_table(
    backend: Backend,
    positions: I64,
    inv_freq: F32,
    scale: float = 1.0,
    row_scales: F32 | None = None,
    out: RopeTable | None = None,
) -> RopeTable:
    """The table for these positions. scale: the attention factor. row_scales: another factor for each row."""
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
    """Rotates x [rows, heads, head_dim] in place; row r rotates by row r of the table."""
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
