"""Gemma 3n (text): Gemma 4's layers, over several streams of which one goes through attention and feed-forward.

- Before a layer, each stream is predicted from all of them. After it, each is corrected by what changed in the first.
- A narrow projection of the layer's input stands beside attention.
- Each layer's own embedding of the token is added to all streams but the first.
- In some layers, only the gates that stand out of their row are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import ModelConfig, StreamsConfig, inverse_root
from surefoot.models.decoder import Layer, Model
from surefoot.models.feed_forward import FeedForward, gated
from surefoot.models.gemma2 import post_norm_layer
from surefoot.models.gemma3 import gemma3_from_gguf, gemma3_from_hf
from surefoot.models.gemma4 import layer_inputs, sharing
from surefoot.models.gguf_config import Gguf
from surefoot.models.linear import Linear, LinearPart
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features
from surefoot.ops import GluForm, add, combine, embed, glu, match_rms, norm, softcap, sparsify
from surefoot.ops.arrays import F32, I64
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

LEAST = 1e-5  # mean square of a stream, at least, that is brought to another's length
DIGITS = 7  # of the bound of what stands out, so that libm's last bit does not show


@dataclass(frozen=True)
class Streams:
    """Several streams of each row [rows * count, width], a row's one after another. The first is the step's own when a
    layer begins and ends."""

    count: int

    def array(self, step: Step, name: str) -> F32:
        return step.floats(name, step.rows * self.count, step.h.shape[1])

    def of(self, step: Step, streams: F32, number: int) -> F32:
        """One stream of each row."""
        width = step.h.shape[1]
        return streams.reshape(step.rows, -1)[:, number * width : (number + 1) * width]

    def places(self, step: Step) -> I64:
        """Where the first stream of each row is, in the array."""
        return np.arange(step.rows) * self.count

    def rows(self, step: Step) -> I64:
        """The row of each place in the array, [places, 1]."""
        return np.arange(step.rows).repeat(self.count).reshape(-1, 1)


@dataclass(frozen=True)
class Begin:
    """Makes the streams from the embeddings: projections of the same length."""

    streams: Streams
    projections: tuple[Linear, ...]  # to each stream but the first

    def __call__(self, step: Step) -> None:
        array, rows = self.streams.array(step, "streams"), np.arange(step.rows)
        embed(step.backend, rows, step.settle(), out=self.streams.of(step, array, 0))
        for number, matrix in enumerate(self.projections, 1):
            projected = step.project(matrix, step.stream(matrix), "stream projected")
            match_rms(step.backend, step.h, projected, LEAST)
            embed(step.backend, rows, projected, out=self.streams.of(step, array, number))


@dataclass(frozen=True)
class End:
    """Leaves the mean of the streams in the step's own: all but the first are projected back, to the first's length."""

    streams: Streams
    projections: tuple[Linear, ...]  # from each stream but the first

    def __call__(self, step: Step) -> None:
        array, h = self.streams.array(step, "streams"), step.h
        first, last = self.streams.of(step, array, 0), len(self.projections)
        embed(step.backend, self.streams.places(step), array, out=h)
        for number, matrix in enumerate(self.projections, 1):
            x = step.features("stream", self.streams.of(step, array, number), matrix)
            projected = step.project(matrix, x, "stream projected")
            match_rms(step.backend, first, projected, LEAST)
            add(step.backend, h, projected, 1.0 / self.streams.count if number == last else 1.0, out=h)


@dataclass(frozen=True)
class Mixing:
    """How streams are predicted and corrected: by weights that are made of one of them."""

    streams: Streams
    router_norm: Norm  # before the router
    router: Linear  # in float32, one output for each stream; tanh follows
    prediction: Linear  # in float32, one output for each pair: how much of each stream goes to each
    correction: Linear  # in float32, one output for each stream: how much of what changed goes to it

    def predict(self, step: Step) -> F32:
        """The predictions. The first of them is the step's stream afterwards."""
        array, out = self.streams.array(step, "streams"), self.streams.array(step, "predicted")
        weights = self._weights(step, self.prediction, self.streams.of(step, array, 0), "predictions")
        places = self.streams.places(step).repeat(self.streams.count)[:, None] + np.arange(self.streams.count)
        weights = weights.reshape(len(out), self.streams.count)
        combine(step.backend, array, places, weights, residual=array, out=out)
        embed(step.backend, self.streams.places(step), out, out=step.h)
        return out

    def correct(self, step: Step, predicted: F32) -> None:
        """The streams: the predictions, and of the first one's change as much as each gets."""
        array, h = self.streams.array(step, "streams"), step.settle()
        weights = self._weights(step, self.correction, h, "corrections").reshape(-1, 1)
        change, minus = step.floats("change", *h.shape), np.full((step.rows, 1), -1, np.float32)
        combine(step.backend, predicted, self.streams.places(step).reshape(-1, 1), minus, residual=h, out=change)
        combine(step.backend, change, self.streams.rows(step), weights, residual=predicted, out=array)

    def _weights(self, step: Step, matrix: Linear, stream: F32, name: str) -> F32:
        normed, form = step.floats("routed", *stream.shape), self.router_norm
        norm(step.backend, form.form, stream, form.weight, y=normed)
        routed = step.project(self.router, Features(normed, None), "router")
        return step.project(matrix, Features(softcap(step.backend, routed, 1.0, out=routed), None), name)


@dataclass(frozen=True)
class NarrowResidual:
    """The normed input of a layer, and a narrow projection of it."""

    left: Linear  # to a narrower vector
    right: Linear  # back
    norm: Norm  # of the projection

    def __call__(self, step: Step, x: Features, normed: F32) -> F32:
        narrow = step.features("narrow", step.project(self.left, x, "narrow"), self.right)
        y = step.project(self.right, narrow, "narrow residual")
        norm(step.backend, self.norm.form, y, self.norm.weight, y=y)
        return add(step.backend, y, normed, out=y)


@dataclass(frozen=True)
class StreamInput:
    """Adds the layer's own embedding of the token, gated by the first stream, to all other streams."""

    streams: Streams
    glu: GluForm  # the gate's activation
    columns: slice  # of the layer in all layers' embeddings
    num_columns: int  # of all layers
    gate: Linear  # in float32, from the stream to the layer's lanes, with a scale for each lane of the stream
    out: Linear  # back to the streams
    norm: Norm  # of what is added

    def __call__(self, step: Step) -> None:
        array = self.streams.array(step, "streams")
        gate = step.project(self.gate, Features(self.streams.of(step, array, 0), None), "input gate")
        inputs = step.floats("layer inputs", step.rows, self.num_columns)[:, self.columns]
        x = step.workspace.features("gated input", gate.shape, self.out.matrices)
        glu(step.backend, self.glu, gate, inputs, y=x.floats, quantised=x.quantised)
        delta = step.project(self.out, x, "delta")
        norm(step.backend, self.norm.form, delta, self.norm.weight, y=delta)
        weights = np.ones((step.rows, self.streams.count), np.float32)
        weights[:, 0] = 0
        combine(step.backend, delta, self.streams.rows(step), weights.reshape(-1, 1), residual=array, out=array)


@dataclass(frozen=True)
class Gemma3nLayer:
    """One layer, over all streams."""

    mixing: Mixing
    attention_norm: Norm  # before attention
    attention: Attention
    narrow: NarrowResidual  # beside attention
    after_attention_norm: Norm  # of attention's output
    ffn_norm: Norm  # before feed-forward
    ffn: FeedForward
    after_ffn_norm: Norm  # of the feed-forward's output
    spreads: float | None  # gates are kept that are this many standard deviations above their mean; None: all
    input: StreamInput

    def __call__(self, step: Step) -> None:
        predicted = self.mixing.predict(step)
        self._attend(step)
        self._feed(step)
        self.mixing.correct(step, predicted)
        self.input(step)

    def _attend(self, step: Step) -> None:
        backend, h = step.backend, step.h
        x = step.workspace.features("normed", h.shape, (*self.attention.qkv.matrices, *self.narrow.left.matrices))
        normed = step.floats("normed beside", *h.shape) if x.floats is None else x.floats
        before, after = self.attention_norm, self.after_attention_norm
        norm(backend, before.form, h, before.weight, y=normed, quantised=x.quantised)
        narrow = self.narrow(step, x, normed)
        delta = step.project(self.attention.out, self.attention(step, x), "delta")
        norm(backend, after.form, delta, after.weight, y=delta)
        add(backend, h, add(backend, delta, narrow, out=delta), inverse_root(2), out=h)

    def _feed(self, step: Step) -> None:
        gate_up = step.project(self.ffn.gate_up, step.norm(self.ffn_norm, self.ffn.gate_up), "gate_up")
        if self.spreads is not None:
            sparsify(step.backend, gate_up[:, : gate_up.shape[1] // 2], self.spreads)
        x = gated(step, self.ffn.glu, gate_up, self.ffn.down.matrices)
        delta, after = step.project(self.ffn.down, x, "delta"), self.after_ffn_norm
        norm(step.backend, after.form, delta, after.weight, y=delta)
        add(step.backend, step.h, delta, out=step.h)


@dataclass(frozen=True)
class Parts:
    """Parts of a layer, one after another."""

    parts: tuple[Layer, ...]

    def __call__(self, step: Step) -> None:
        for part in self.parts:
            part(step)


# ---- configuration ----


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf, config = Gguf(checkpoint), gemma3_from_gguf(checkpoint, "gemma3n")
    spreads = [None if bound == -np.inf else float(bound) for bound in gguf.need("activation_sparsity_scale")]
    return _gemma3n(
        replace(config, layer_lanes=gguf.need("embedding_length_per_layer_input")),
        gguf.need("attention.shared_kv_layers"),
        StreamsConfig(gguf.need("altup.num_inputs"), _spreads(spreads, len(config.layers))),
        gguf.need("altup.active_idx"),
        gguf.get("final_logit_softcapping", 30.0),
    )


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    config = gemma3_from_hf({**hf, "query_pre_attn_scalar": 1.0}, "gemma3n")
    count = len(config.layers)
    shares = hf.get("activation_sparsity_pattern") or 0.0
    shares = shares if isinstance(shares, list) else [shares] * count
    bounds = [round(NormalDist().inv_cdf(share), DIGITS) if share else None for share in shares]
    return _gemma3n(
        replace(config, layer_lanes=need(hf, "hidden_size_per_layer_input")),
        need(hf, "num_kv_shared_layers"),
        StreamsConfig(need(hf, "altup_num_inputs"), _spreads(bounds, count), bool(hf.get("altup_correct_scale", True))),
        need(hf, "altup_active_idx"),
        hf.get("final_logit_softcapping") or 0.0,
    )


def _spreads(bounds: Sequence[float | None], count: int) -> tuple[float | None, ...]:
    if len(bounds) != count:
        raise MetadataError(f"the metadata say for {len(bounds)} layers of {count} which activations are kept")
    return tuple(bounds)


def _gemma3n(config: ModelConfig, shared: int, streams: StreamsConfig, active: int, softcap: float) -> ModelConfig:
    if active:
        raise ValueError(f"gemma3n models whose layers work on stream {active} are not supported: the first is")
    layers = sharing(config.layers, shared)
    norm = replace(config.norm, weight_offset=0.0)
    return replace(config, layers=layers, norm=norm, scale=1.0, logit_softcap=softcap, streams=streams)


# ---- weights ----


def build(load: Loader) -> Model:
    config = load.config
    assert config.streams is not None
    streams, last = Streams(config.streams.count), len(config.layers) - 1

    def layer(i: int) -> Layer:
        parts: list[Layer] = [_layer(load, i, streams)]
        if i == 0:
            parts = [layer_inputs(load), Begin(streams, _projections(load, "altup_proj")), *parts]
        if i == last:
            parts.append(End(streams, _projections(load, "altup_unembd_proj")))
        return Parts(tuple(parts))

    return load.model(layer)


def _projections(load: Loader, name: str) -> tuple[Linear, ...]:
    (part,) = load.experts(name).parts
    return tuple(Linear((LinearPart(matrix),)) for matrix in part.experts)


def _layer(load: Loader, i: int, streams: Streams) -> Gemma3nLayer:
    config, name = load.config, f"blk.{i}"
    usual = post_norm_layer(load, i)
    assert usual.attention_norm is not None
    assert usual.ffn_norm is not None
    assert config.streams is not None
    return Gemma3nLayer(
        _mixing(load, name, streams),
        usual.attention_norm,
        replace(usual.attention, value_norm=config.norm),
        NarrowResidual(
            load.linear(f"{name}.laurel_l"), load.linear(f"{name}.laurel_r"), load.norm(f"{name}.laurel_post_norm")
        ),
        usual.after_attention_norm,
        usual.ffn_norm,
        usual.ffn,
        usual.after_ffn_norm,
        config.streams.spreads[i],
        _input(load, i, streams),
    )


def _mixing(load: Loader, name: str, streams: Streams) -> Mixing:
    """The router's input is divided by the width. The streams' shares of a change begin at one."""
    router_norm, correction = load.norm(f"{name}.altup_router_norm"), load.vector(f"{name}.altup_correct_coef.weight")
    return Mixing(
        streams,
        replace(router_norm, weight=router_norm.weight / np.float32(load.config.width)),
        load.float_linear(f"{name}.altup_router"),
        load.float_linear(f"{name}.altup_predict_coef"),
        Linear((LinearPart(correction, np.ones(streams.count, np.float32)),)),
    )


def _input(load: Loader, i: int, streams: Streams) -> StreamInput:
    config, name, lanes = load.config, f"blk.{i}", load.config.layer_lanes
    assert config.streams is not None
    gate = load.vector(f"{name}.inp_gate.weight")
    if config.streams.scales:
        gate = gate * load.vector(f"{name}.altup_correct_scale.weight")
    return StreamInput(
        streams,
        config.glu,
        slice(i * lanes, (i + 1) * lanes),
        lanes * len(config.layers),
        Linear((LinearPart(gate),)),
        load.linear(f"{name}.proj"),
        load.norm(f"{name}.post_norm"),
    )
