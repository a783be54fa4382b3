"""The gated delta rule of a layer, between the matrices before and after it."""

import math
from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.config import DeltaConfig, LayerConfig, StateLayer
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features
from surefoot.ops import (
    ConvWeights,
    DeltaGates,
    DeltaRows,
    GluForm,
    NormForm,
    delta_gates,
    delta_rule,
    glu,
    norm_heads,
    short_conv,
)
from surefoot.ops.arrays import F32

UNIT_EPS = 1e-6  # added to the squares of a query or key before it is brought to length one


@dataclass(frozen=True)
class DeltaRule:
    """The gated delta rule. Its states are the last inputs of a convolution, and a matrix for each head."""

    layer: int  # its number
    sizes: DeltaConfig  # of its heads
    conv: ConvWeights  # over queries, keys and values
    query_norm: Norm  # to length one, and the scale
    key_norm: Norm  # to length one
    rate: F32  # of forgetting, one per head, or one per lane of the heads' keys
    rate_bias: F32  # likewise
    out_norm: Norm  # of each head's output

    def __call__(self, step: Step, mixed: F32, alpha: F32, beta: F32) -> F32:
        """The heads' normed outputs [rows, heads, lanes], from queries, keys and values side by side, and what decides
        how fast states fade and how much they take in."""
        sizes, rows = self.sizes, step.rows
        gates = DeltaGates(step.floats("decay", *alpha.shape), step.floats("beta", rows, sizes.heads))
        delta_gates(step.backend, alpha, beta, self.rate, self.rate_bias, gates)
        y = step.floats("delta", rows, sizes.heads, sizes.value_dim)
        state = step.states[self.layer][1]
        delta_rule(step.backend, self._convolved(step, mixed), gates, state, step.batch.states, sizes.tiled, y=y)
        norm_heads(step.backend, self.out_norm.form, y, self.out_norm.weight)
        return y

    def _convolved(self, step: Step, mixed: F32) -> DeltaRows:
        """Queries and keys of length one, and values, after the convolution."""
        sizes, rows = self.sizes, step.rows
        y = step.floats("delta mixed", rows, sizes.conv_width)
        short_conv(step.backend, mixed, self.conv, step.states[self.layer][0], step.batch.states, y=y)
        keys = sizes.key_heads * sizes.key_dim
        q, k = (y[:, at : at + keys].reshape(rows, sizes.key_heads, sizes.key_dim) for at in (0, keys))
        norm_heads(step.backend, self.query_norm.form, q, self.query_norm.weight)
        norm_heads(step.backend, self.key_norm.form, k, self.key_norm.weight)
        return DeltaRows(q, k, y[:, 2 * keys :].reshape(rows, sizes.heads, sizes.value_dim))


def gated_heads(step: Step, form: GluForm, gate: F32, heads: F32, reader: Linear) -> Features:
    """The heads' outputs times act(gate), in the form that the reader takes."""
    x = step.workspace.features("gated heads", gate.shape, reader.matrices)
    glu(step.backend, form, gate, heads.reshape(gate.shape), y=x.floats, quantised=x.quantised)
    return x


def delta_layer(delta: DeltaConfig) -> LayerConfig:
    shapes = (delta.num_taps - 1, delta.conv_width), (delta.heads, delta.key_dim, delta.value_dim)
    return LayerConfig(StateLayer(shapes), None)


def load_delta_rule(load: Loader, i: int, *convolutions: str) -> DeltaRule:
    """convolutions: the tensors of the convolution's columns, side by side."""
    name, sizes = f"blk.{i}", load.config.delta
    assert sizes is not None
    lanes, unit = sizes.key_dim, NormForm("rms", UNIT_EPS / sizes.key_dim)
    rate = load.decay(name)
    return DeltaRule(
        layer=i,
        sizes=sizes,
        conv=load.conv(*(f"{name}.{part}" for part in convolutions), silu=True),
        query_norm=Norm(unit, np.full(lanes, 1.0 / lanes, np.float32)),
        key_norm=Norm(unit, np.full(lanes, 1.0 / math.sqrt(lanes), np.float32)),
        rate=np.repeat(rate, lanes) if sizes.by_lane else rate,
        rate_bias=load.vector(f"{name}.ssm_dt.bias"),
        out_norm=Norm(replace(load.config.norm, weight_offset=0.0), load.vector(f"{name}.ssm_norm.weight")),
    )
