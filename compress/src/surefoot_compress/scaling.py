"""Scales input channels without changing the function: AWQ (for weights) and SmoothQuant (for int8 activations).

The matrices that share an input are multiplied by a factor per channel; the norm or matrix that produces the input is
divided by it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32
from surefoot_compress.assign import nearest, output_error
from surefoot_compress.forward import GROUPS
from surefoot_compress.grids import Format
from surefoot_compress.moments import Moments

EXPONENTS = np.linspace(0.0, 0.95, 20)  # that AWQ's search tries
SAMPLED_ROWS = 512  # of a matrix, at least, that AWQ's search measures errors on
# The norm or matrix that produces each group's input and absorbs its factors.
PRODUCERS = {"attn_q": "attn_norm", "attn_output": "attn_v", "ffn_gate": "ffn_norm", "ffn_down": "ffn_up"}

Arrays = Mapping[str, F32]  # a layer's tensors, by GGUF names without "blk.N."
Matrices = Sequence[tuple[F32, Format]]  # each with the format that it will be quantised to


@dataclass(frozen=True)
class ScaledLayer:
    """A layer with factors folded in."""

    weights: dict[str, F32]  # the layer's tensors after scaling
    moments: dict[str, Moments]  # of the scaled inputs, by matrix
    columns: dict[str, F32] = field(default_factory=dict)  # what each matrix's columns were multiplied by
    rows: dict[str, F32] = field(default_factory=dict)  # what each producer's rows were divided by


class ChooseFactors(Protocol):
    """Chooses a factor per input channel for a group of matrices that share their inputs."""

    def __call__(
        self, config: ModelConfig, group: str, matrices: Matrices, moments: Moments, threads: int
    ) -> F32: ...  # fmt: skip


def scale_layer(
    config: ModelConfig,
    weights: Arrays,
    moments: Mapping[str, Moments],
    formats: Mapping[str, Format],
    choose: ChooseFactors,
    threads: int,
) -> ScaledLayer:
    """Scales each group whose matrices all have a format."""
    layer = ScaledLayer(dict(weights), dict(moments))
    for group in GROUPS:
        matrices = [(layer.weights[f"{name}.weight"], formats[name]) for name in group if name in formats]
        if len(matrices) == len(group):
            factors = choose(config, group[0], matrices, layer.moments[group[0]], threads)
            layer = fold_factors(config, layer, group, factors)
    return layer


def awq(config: ModelConfig, group: str, matrices: Matrices, moments: Moments, threads: int) -> F32:
    """The factors rms^e with the least error of the outputs; rms is each channel's root mean square."""
    rms = shared_lanes(config, group, np.sqrt(moments.importance) + np.float32(1e-6))
    samples = [(len(weights), _sample_rows(weights), fmt) for weights, fmt in matrices]

    def factors(exponent: float) -> F32:
        powers: F32 = (rms**exponent).astype(np.float32)
        powers /= np.sqrt(powers.max() * powers.min())
        return powers

    def error(exponent: float) -> float:
        tried = factors(exponent)
        return sum(count * _error(rows, tried, fmt, moments.second) for count, rows, fmt in samples)

    with ThreadPoolExecutor(threads) as pool:
        errors = list(pool.map(error, EXPONENTS))
    return factors(EXPONENTS[int(np.argmin(errors))])


def _sample_rows(weights: F32) -> F32:
    return weights[:: max(1, len(weights) // SAMPLED_ROWS)]


def _error(rows: F32, factors: F32, fmt: Format, second: F32) -> float:
    """The mean error of a row's outputs."""
    scaled = rows * factors
    grid = fmt.fit(scaled, None)
    return output_error(rows, grid.floats(nearest(grid, scaled)) / factors, second) / len(rows)


def smoothquant(config: ModelConfig, group: str, matrices: Matrices, moments: Moments, threads: int = 1) -> F32:
    """SmoothQuant's factors (max|x| / max|w|)^0.5: inputs divided by them lose less in int8 with one scale per row."""
    largest = shared_lanes(config, group, moments.largest)
    columns = np.maximum.reduce([np.abs(weights).max(axis=0) for weights, _ in matrices])
    factors = np.sqrt(np.maximum(largest, 1e-5) / np.maximum(columns, 1e-5))
    return np.maximum(shared_lanes(config, group, factors), 1e-5).astype(np.float32)


def shared_lanes(config: ModelConfig, group: str, values: F32) -> F32:
    """`values` where query heads that share a value head share a factor, the largest; only attn_output is affected."""
    if group != "attn_output":
        return values
    kv = config.kv(0)
    by_head = values.reshape(kv.heads, config.heads // kv.heads, -1)
    return np.broadcast_to(by_head.max(axis=1, keepdims=True), by_head.shape).reshape(values.shape).copy()


def fold_factors(config: ModelConfig, layer: ScaledLayer, group: tuple[str, ...], factors: F32) -> ScaledLayer:
    """The layer with the group's matrices multiplied by the factors and their producer divided by them."""
    weights, moments = dict(layer.weights), dict(layer.moments)
    for name in group:
        weights[f"{name}.weight"] = weights[f"{name}.weight"] * factors
    if group[0] in moments:
        moments |= dict.fromkeys(group, moments[group[0]].scaled(factors))
    columns = layer.columns | dict.fromkeys(group, factors)
    producer = PRODUCERS[group[0]]
    if producer.endswith("_norm"):
        offset = np.float32(config.norm.weight_offset)
        weights[f"{producer}.weight"] = (weights[f"{producer}.weight"] + offset) / factors - offset
        return ScaledLayer(weights, moments, columns, layer.rows)
    if producer == "attn_v":
        kv = config.kv(0)
        factors = factors.reshape(kv.heads, config.heads // kv.heads, -1)[:, 0].reshape(-1)
    weights[f"{producer}.weight"] = weights[f"{producer}.weight"] / factors[:, None]
    if f"{producer}.bias" in weights:
        weights[f"{producer}.bias"] = weights[f"{producer}.bias"] / factors
    return ScaledLayer(weights, moments, columns, layer.rows | {producer: factors})
