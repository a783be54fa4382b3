"""A factor per input channel, undone by what comes before: AWQ (for weights) and SmoothQuant (for int8 activations).

Matrices that share an input are multiplied by the factors; the norm or the matrix that makes the input is divided.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from surefoot.compress.assign import nearest, output_error
from surefoot.compress.forward import GROUPS
from surefoot.compress.grids import Format
from surefoot.compress.moments import Moments
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32

EXPONENTS = np.linspace(0.0, 0.95, 20)
SOME_ROWS = 512  # of a matrix, at least, tell which exponent errs least
# What makes each group's input, and can take up its factors.
MAKERS = {"attn_q": "attn_norm", "attn_output": "attn_v", "ffn_gate": "ffn_norm", "ffn_down": "ffn_up"}

Arrays = Mapping[str, F32]


@dataclass(frozen=True)
class Scaled:
    """A layer with factors folded in: by matrix, what its columns were multiplied and its rows divided by."""

    weights: dict[str, F32]
    moments: dict[str, Moments]
    columns: dict[str, F32] = field(default_factory=dict)
    rows: dict[str, F32] = field(default_factory=dict)


class Choose(Protocol):
    """The factors of a group of matrices, each with its format, that share these inputs."""

    def __call__(
        self, config: ModelConfig, group: str, given: Sequence[tuple[F32, Format]], moments: Moments, threads: int
    ) -> F32: ...


def scale(
    config: ModelConfig,
    weights: Arrays,
    moments: Mapping[str, Moments],
    formats: Mapping[str, Format],
    choose: Choose,
    threads: int,
) -> Scaled:
    """Group by group, where all of its matrices have a format."""
    now = Scaled(dict(weights), dict(moments))
    for group in GROUPS:
        given = [(now.weights[f"{name}.weight"], formats[name]) for name in group if name in formats]
        if len(given) == len(group):
            now = fold(config, now, group, choose(config, group[0], given, now.moments[group[0]], threads))
    return now


def awq(config: ModelConfig, group: str, given: Sequence[tuple[F32, Format]], moments: Moments, threads: int) -> F32:
    """The factors a^e (a: the inputs' root mean square) with the least error of the outputs."""
    size = shared_lanes(config, group, np.sqrt(moments.importance) + np.float32(1e-6))
    some = [(len(weights), _some_rows(weights), fmt) for weights, fmt in given]

    def factors(exponent: float) -> F32:
        powers: F32 = (size**exponent).astype(np.float32)
        powers /= np.sqrt(powers.max() * powers.min())
        return powers

    def error(exponent: float) -> float:
        tried = factors(exponent)
        return sum(count * _error(rows, tried, fmt, moments.second) for count, rows, fmt in some)

    with ThreadPoolExecutor(threads) as pool:
        errors = list(pool.map(error, EXPONENTS))
    return factors(EXPONENTS[int(np.argmin(errors))])


def _some_rows(weights: F32) -> F32:
    return weights[:: max(1, len(weights) // SOME_ROWS)]


def _error(rows: F32, factors: F32, fmt: Format, second: F32) -> float:
    """A row's, on average."""
    scaled = rows * factors
    grid = fmt.fit(scaled, None)
    return output_error(rows, grid.floats(nearest(grid, scaled)) / factors, second) / len(rows)


def smooth(
    config: ModelConfig, group: str, given: Sequence[tuple[F32, Format]], moments: Moments, threads: int = 1
) -> F32:
    """SmoothQuant's: (max|x| / max|w|)^0.5 divides the inputs, so that int8 with one scale a row wastes less."""
    largest = shared_lanes(config, group, moments.largest)
    columns = np.maximum.reduce([np.abs(weights).max(axis=0) for weights, _ in given])
    factors = np.sqrt(np.maximum(largest, 1e-5) / np.maximum(columns, 1e-5))
    return np.maximum(shared_lanes(config, group, factors), 1e-5).astype(np.float32)


def shared_lanes(config: ModelConfig, group: str, values: F32) -> F32:
    """Lanes of heads that share a value head must share a factor: their largest."""
    if group != "attn_output":
        return values
    kv = config.kv(0)
    by_head = values.reshape(kv.heads, config.heads // kv.heads, -1)
    return np.broadcast_to(by_head.max(axis=1, keepdims=True), by_head.shape).reshape(values.shape).copy()


def fold(config: ModelConfig, now: Scaled, group: tuple[str, ...], factors: F32) -> Scaled:
    """The group's matrices times the factors, their maker divided by them."""
    weights, moments = dict(now.weights), dict(now.moments)
    for name in group:
        weights[f"{name}.weight"] = weights[f"{name}.weight"] * factors
    if group[0] in moments:
        moments |= dict.fromkeys(group, moments[group[0]].scaled(factors))
    columns = now.columns | dict.fromkeys(group, factors)
    maker = MAKERS[group[0]]
    if maker.endswith("_norm"):
        offset = np.float32(config.norm.weight_offset)
        weights[f"{maker}.weight"] = (weights[f"{maker}.weight"] + offset) / factors - offset
        return Scaled(weights, moments, columns, now.rows)
    if maker == "attn_v":
        kv = config.kv(0)
        factors = factors.reshape(kv.heads, config.heads // kv.heads, -1)[:, 0].reshape(-1)
    weights[f"{maker}.weight"] = weights[f"{maker}.weight"] / factors[:, None]
    if f"{maker}.bias" in weights:
        weights[f"{maker}.bias"] = weights[f"{maker}.bias"] / factors
    return Scaled(weights, moments, columns, now.rows | {maker: factors})
