"""Mamba-2's mixer, as hybrid families have it: a convolution, the scan, and a norm of the gated outputs."""

from dataclasses import dataclass

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import LayerConfig, ScanConfig, StateLayer
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.step import Step
from surefoot.models.workspace import Features
from surefoot.ops import ConvWeights, ScanGates, ScanRows, gated_norm, short_conv, ssd_gates, ssd_scan
from surefoot.ops.arrays import F32
from surefoot.weights.metadata import MetadataError

LANES = 16  # of a head: what the scan takes a multiple of


@dataclass(frozen=True)
class Mamba2:
    """The mixer of one layer. Its states are the last inputs of a convolution, and a matrix for each head."""

    layer: int  # its number
    sizes: ScanConfig  # of its heads
    inner: Linear  # outputs: the gate of the output, what is convolved, how much each head takes in
    conv: ConvWeights  # over the heads' inputs and both vectors of each group
    rate: F32  # of forgetting, one per head
    rate_bias: F32  # one per head
    skip: F32  # how much of its input a head's output has directly, one per head
    norm_weight: F32  # one per lane of all heads
    out: Linear  # back to the stream

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.inner,)

    def __call__(self, step: Step, x: Features) -> Features:
        """The heads' gated outputs, normed, in the form that `out` takes."""
        sizes, rows = self.sizes, step.rows
        parts = step.project(self.inner, x, "scan parts")
        gate, mixed, taken = np.split(parts, np.cumsum([sizes.inner, sizes.conv_width]), axis=1)
        gates = ScanGates(step.floats("scan decay", rows, sizes.heads), step.floats("scan dt", rows, sizes.heads))
        ssd_gates(step.backend, taken, self.rate, self.rate_bias, gates)
        y = step.floats("scanned", rows, sizes.heads, sizes.head_dim)
        state = step.states[self.layer][1]
        ssd_scan(step.backend, self._convolved(step, mixed), gates, self.skip, state, step.batch.states, y=y)
        out = step.workspace.features("scanned", gate.shape, self.out.matrices)
        gated_norm(
            step.backend, sizes.norm_eps, sizes.norm_groups, y.reshape(gate.shape), gate, self.norm_weight,
            y=out.floats, quantised=out.quantised,
        )  # fmt: skip
        return out

    def _convolved(self, step: Step, mixed: F32) -> ScanRows:
        sizes, rows = self.sizes, step.rows
        y = step.floats("scan mixed", rows, sizes.conv_width)
        short_conv(step.backend, mixed, self.conv, step.states[self.layer][0], step.batch.states, y=y)
        x, b, c = np.split(y, np.cumsum([sizes.inner, sizes.groups * sizes.state_dim]), axis=1)
        groups = rows, sizes.groups, sizes.state_dim
        return ScanRows(x.reshape(rows, sizes.heads, sizes.head_dim), b.reshape(groups), c.reshape(groups))


def scan_layer(sizes: ScanConfig) -> LayerConfig:
    if sizes.heads % sizes.groups or sizes.head_dim % LANES:
        raise MetadataError(
            f"the metadata say {sizes.heads} heads of {sizes.head_dim} lanes in {sizes.groups} groups, where a "
            f"multiple, and of {LANES} lanes, is allowed"
        )
    shapes = (sizes.num_taps - 1, sizes.conv_width), (sizes.heads, sizes.state_dim, sizes.head_dim)
    return LayerConfig(StateLayer(shapes), None)


def load_mixer(load: Loader, i: int) -> Mamba2 | Attention:
    """The mixer of a layer, as its config says."""
    return _mamba2(load, i) if i in load.config.states else load.attention(i)


def _mamba2(load: Loader, i: int) -> Mamba2:
    name, sizes = f"blk.{i}", load.config.scan
    assert sizes is not None
    return Mamba2(
        layer=i,
        sizes=sizes,
        inner=load.linear(f"{name}.ssm_in"),
        conv=load.conv(f"{name}.ssm_conv1d", silu=True),
        rate=load.decay(name),
        rate_bias=load.vector(f"{name}.ssm_dt.bias"),
        skip=load.vector(
            f"{name}.ssm_d" if f"{name}.ssm_d" in load.checkpoint.tensors else f"{name}.ssm_d.weight"
        ).ravel(),
        norm_weight=load.vector(f"{name}.ssm_norm.weight").ravel(),
        out=load.linear(f"{name}.ssm_out"),
    )
