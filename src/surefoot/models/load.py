"""Loads a checkpoint's weights into a model: fused and packed, or left in float32."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np

from surefoot.formats import ModelFormat, round_to
from surefoot.models.attention import Attention
from surefoot.models.config import ModelConfig, QueryGrowth, SharedKv
from surefoot.models.decoder import Layer, Model
from surefoot.models.dense import Dense
from surefoot.models.feed_forward import Experts, Feed, FeedForward, GatedExpert
from surefoot.models.layers import Mixer, PreNormLayer
from surefoot.models.linear import ExpertLinear, ExpertPart, Linear, LinearPart
from surefoot.models.step import Norm, Rope
from surefoot.ops import (
    TWO_LIMBS,
    ActivationForm,
    Backend,
    ConvWeights,
    FactorScaling,
    IntegerWeights,
    PackedWeights,
    RopeForm,
    embed,
    pack,
)
from surefoot.ops.arrays import F32, I64
from surefoot.ops.elementary import elementary
from surefoot.weights.checkpoint import Checkpoint

DENSE = ("dense_2", "dense_3")  # matrices after the pooling, in order
STANDING = 1e30  # a lane's frequency divided by this is none, as GGUF files write it
BEFORE_CLASSIFIER, CLASSIFIER = "cls", "cls.output"  # what turns an encoder's state into a score


class Loader:
    """Reads a checkpoint's tensors by their GGUF names, without `.weight`.

    The format's inputs are the activations that layers' matrices take. The head always takes two limbs: its inputs are
    few, and no later layer corrects what they lose."""

    def __init__(self, backend: Backend, checkpoint: Checkpoint, config: ModelConfig, fmt: ModelFormat) -> None:
        self.backend = backend
        self.checkpoint = checkpoint
        self.config = config
        self._format, self._inputs, self._remainder_format = fmt.weights, fmt.inputs, fmt.remainder
        self._ropes: dict[RopeForm, Rope] = {}
        self._query_ropes: dict[RopeForm, Rope] = {}

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.checkpoint.tensors

    def vector(self, name: str) -> F32:
        """A tensor in float32: a norm, bias or router. (Matrices are checked where they are rounded.)"""
        values = np.ascontiguousarray(self.checkpoint.floats(name))
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are infinite or not a number: its file may be damaged")
        return values

    def bias(self, name: str) -> F32 | None:
        return self.vector(f"{name}.bias") if f"{name}.bias" in self.checkpoint.tensors else None

    def norm(self, name: str) -> Norm:
        return Norm(self.config.norm, self.vector(f"{name}.weight"), self.bias(name))

    def norm_if_any(self, name: str) -> Norm | None:
        return self.norm(name) if self.has(name) else None

    def rope(self, form: RopeForm | None) -> Rope | None:
        if form is None:
            return None
        if form not in self._ropes:
            self._ropes[form] = Rope.of(form)
        return self._ropes[form]

    def query_rope(self, form: RopeForm | None) -> Rope | None:
        """The RoPE of queries, where they grow with their position; None: the keys' one."""
        if form is None or self.config.query_growth is None:
            return None
        if form not in self._query_ropes:
            growth = growth_by_position(self.config.query_growth, self.config.context)
            self._query_ropes[form] = Rope.of(form, growth)
        return self._query_ropes[form]

    def growth(self, lanes: int) -> Rope | None:
        """A RoPE of queries that do not rotate, of which only their growth is left; None: they do not grow."""
        return self.query_rope(RopeForm(lanes, scaling=FactorScaling((STANDING,) * (lanes // 2))))

    def linear(self, *names: str, inputs: ActivationForm | None = None) -> Linear:
        """The matrices fused, their outputs side by side, with biases if the checkpoint has any."""
        bias = self._biases(names)
        if self._format is None:
            return Linear((LinearPart(_joined([self.vector(f"{name}.weight") for name in names]), bias),))
        matrices = self.checkpoint.fused(self.backend, [f"{name}.weight" for name in names], self._format)
        ends = np.cumsum([matrix.n for matrix in matrices])
        biases = [None] * len(matrices) if bias is None else np.split(bias, ends[:-1])
        remainders = self._remainders(names, matrices)
        return Linear(
            tuple(
                LinearPart(self._with_inputs(matrix, inputs), bias, remainder)
                for matrix, bias, remainder in zip(matrices, biases, remainders, strict=True)
            )
        )

    def _remainders(self, names: Sequence[str], matrices: Sequence[PackedWeights]) -> list[PackedWeights | None]:
        """What rounding left of each matrix. Matrices in the file's own codes leave none worth a product."""
        if self._remainder_format is None:
            return [None] * len(matrices)
        floats = _joined([self.vector(f"{name}.weight") for name in names])
        found: list[PackedWeights | None] = []
        for matrix, own in zip(matrices, np.split(floats, np.cumsum([matrix.n for matrix in matrices])), strict=False):
            left = own - embed(self.backend, np.arange(matrix.n), matrix)
            is_rounded = np.abs(left).max() > np.abs(own).max() / 1000
            found.append(pack(self.backend, round_to(self._remainder_format, left)) if is_rounded else None)
        return found

    def _with_inputs(self, matrix: PackedWeights, inputs: ActivationForm | None = None) -> PackedWeights:
        return replace(matrix, inputs=inputs or self._inputs)

    def rows_of(self, name: str, rows: I64) -> Linear:
        """A matrix of the given rows, in that order."""
        if self._format is None:
            return Linear((LinearPart(self.vector(f"{name}.weight")[rows]),))
        weights = self.checkpoint.integers(f"{name}.weight", self._format)
        return Linear((LinearPart(self._with_inputs(pack(self.backend, take_rows(weights, rows)))),))

    def float_linear(self, name: str) -> Linear:
        """A matrix in float32: a router's, which is better not rounded."""
        return Linear((LinearPart(self.vector(f"{name}.weight"), self.bias(name)),))

    def conv(self, *names: str, silu: bool = False) -> ConvWeights:
        """A convolution of each column by itself, from tensors [columns, taps], side by side."""
        tensors = [self.vector(f"{name}.weight") for name in names]
        taps = _joined([tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors])
        return ConvWeights(np.ascontiguousarray(taps.T), self._biases(names), silu)

    def decay(self, name: str) -> F32:
        """Of each head's state. GGUF files hold the rate itself, Hugging Face's the logarithm of its size."""
        if f"{name}.ssm_a" in self.checkpoint.tensors:
            return self.vector(f"{name}.ssm_a").ravel()
        return -elementary(self.backend, "exp", self.vector(f"{name}.ssm_a_log.weight").ravel())

    def experts(self, *names: str) -> ExpertLinear:
        """Tensors [experts, rows, columns], their outputs side by side."""
        biases = [self.bias(name) for name in names]
        if self._format is None:
            floats = [self.checkpoint.floats(f"{name}.weight") for name in names]
            return ExpertLinear((ExpertPart(tuple(np.concatenate(floats, axis=1)), _by_expert(biases)),))
        runs = self.checkpoint.fused_experts(self.backend, [f"{name}.weight" for name in names], self._format)
        if len(runs) > 1 and any(bias is not None for bias in biases):
            raise ValueError(f"{', '.join(names)} have biases but no common format")
        return ExpertLinear(tuple(ExpertPart(tuple(map(self._with_inputs, run)), _by_expert(biases)) for run in runs))

    def _biases(self, names: Sequence[str]) -> F32 | None:
        """The biases side by side, zeros for a missing one; None if all are missing."""
        biases = [self.bias(name) for name in names]
        if all(bias is None for bias in biases):
            return None
        lengths = [self.checkpoint.tensors[f"{name}.weight"].shape[0] for name in names]
        return np.concatenate(
            [np.zeros(n, np.float32) if bias is None else bias for bias, n in zip(biases, lengths, strict=True)]
        )

    # ---- parts that most families share ----

    def attention(self, layer: int, qkv: Linear | None = None) -> Attention:
        """Attention, with norms of queries and keys, biases and sinks if the checkpoint has them. qkv: if the family
        makes that matrix itself."""
        config, name = self.config, f"blk.{layer}.attn"
        kv, keeps = config.kv(layer), not isinstance(config.kept_layers[layer].kv, SharedKv)
        value = f"{name}_v" if self.has(f"{name}_v") else f"{name}_k"  # some models use keys as values
        separate = (f"{name}_q", f"{name}_k", value) if keeps else (f"{name}_q",)
        sinks = f"{name}_sinks.weight"
        return Attention(
            layer=layer,
            heads=config.heads,
            kv_heads=kv.heads,
            head_dim=kv.key_dim,
            scale=config.scale,
            qkv=qkv or (self.linear(f"{name}_qkv") if self.has(f"{name}_qkv") else self.linear(*separate)),
            out=self.linear(f"{name}_output"),
            rope=self.rope(config.kept_layers[layer].rope),
            query_rope=self.query_rope(config.kept_layers[layer].rope),
            window=kv.window,
            fixed=kv.fixed,
            sees_ahead=config.sees_ahead,
            softcap=config.attention_softcap,
            slopes=alibi_slopes(config.heads) if config.alibi else None,
            query_norm=self.norm_if_any(f"{name}_q_norm"),
            key_norm=self.norm_if_any(f"{name}_k_norm"),
            sinks=self.vector(sinks) if sinks in self.checkpoint.tensors else None,
            keeps=keeps,
        )

    def feed_forward(self, layer: int, suffix: str = "") -> FeedForward:
        """Gate, up and down. Some files have gate and up as one tensor, under the name of up."""
        gate, up, down = (f"blk.{layer}.ffn_{part}{suffix}" for part in ("gate", "up", "down"))
        gate_up = self.linear(gate, up) if self.has(gate) else self.linear(up)
        return FeedForward(self.config.glu, gate_up, self.linear(down))

    def feeds(self, layer: int) -> tuple[Feed, ...]:
        """Feed-forward; or experts, and what is shared beside them."""
        moe = self.config.moe
        if moe is None or not moe.has_experts(layer):
            return (self.feed_forward(layer),)
        return (*self._shared(layer), self.mixture(layer)) if moe.shared else (self.mixture(layer),)

    def _shared(self, layer: int) -> tuple[Feed]:
        ffn, gate = self.feed_forward(layer, "_shexp"), f"blk.{layer}.ffn_gate_inp_shexp.weight"
        if gate not in self.checkpoint.tensors:
            return (ffn,)
        return (GatedExpert(ffn, Linear((LinearPart(self.vector(gate).reshape(1, -1)),))),)

    def mixture(self, layer: int) -> Experts:
        """Some files have the experts' gate and up as one tensor; some have a scale or a bias for each expert."""
        name, moe = f"blk.{layer}.ffn", self.config.moe
        assert moe is not None
        choice_bias = self.bias(f"blk.{layer}.exp_probs_b")
        fused, scales = f"{name}_gate_up_exps", f"{name}_down_exps.scale"
        separate = (f"{name}_gate_exps", f"{name}_up_exps") if self.config.glu.gates else (f"{name}_up_exps",)
        return Experts(
            glu=self.config.glu,
            router=moe.router,
            gate=self.float_linear(f"{name}_gate_inp"),
            gate_up=self.experts(*((fused,) if self.has(fused) else separate)),
            down=self.experts(f"{name}_down_exps"),
            scales=self.vector(scales) if scales in self.checkpoint.tensors else None,
            choice_bias=None if choice_bias is None else choice_bias.ravel(),
        )

    def layer(self, number: int, mixer: Mixer | None = None) -> PreNormLayer:
        """mixer: attention if none is given. Files call the second norm by one of two names."""
        name = f"blk.{number}"
        second = "ffn_norm" if self.has(f"{name}.ffn_norm") else "post_attention_norm"
        mixer_norm, mixer = self.norm(f"{name}.attn_norm"), mixer or self.attention(number)
        return PreNormLayer(mixer_norm, mixer, self.norm(f"{name}.{second}"), self.feeds(number))

    def model(self, make_layer: Callable[[int], Layer]) -> Model:
        """The model of the layers that are made by their numbers. Embeddings and head share a matrix if the checkpoint
        has no other head."""
        layers = tuple(map(make_layer, range(len(self.config.layers))))
        embeddings = self.linear("token_embd", inputs=TWO_LIMBS)
        head = self.linear("output", inputs=TWO_LIMBS) if self.has("output") else embeddings
        table, norm = embeddings.parts[0], self.norm(last_norm(self.config))
        return Model(self.config, table.matrix, layers, norm, head, remainder=table.remainder, dense=self._dense())

    def _dense(self) -> tuple[Dense, ...]:
        """What a pooled vector goes through: matrices; or the layer before an encoder's classifier."""
        matrices = tuple(Dense(self.vector(f"{name}.weight")) for name in DENSE if self.has(name))
        name = BEFORE_CLASSIFIER
        if not (self.has(name) and self.has(CLASSIFIER)):
            return matrices
        norm = self.norm_if_any(f"{name}.norm")
        matrix, bias = self.vector(f"{name}.weight"), self.bias(name)
        return (Dense(matrix, bias, "tanh" if norm is None else "gelu", norm),)


def last_norm(config: ModelConfig) -> str:
    """The name of the norm after the last layer."""
    if config.family == "bert":
        return f"blk.{len(config.layers) - 1}.layer_output_norm"
    return "token_embd_norm" if config.family in ("lfm2", "lfm2_moe") else "output_norm"


def take_rows(weights: IntegerWeights, rows: I64) -> IntegerWeights:
    return replace(
        weights,
        codes=weights.codes[rows],
        row_scales=weights.row_scales[rows],
        scales=None if weights.scales is None else weights.scales[rows],
        offsets=None if weights.offsets is None else weights.offsets[rows],
    )


def alibi_slopes(heads: int) -> F32:
    """Powers of two, evenly spread from 2^0 (not taken) to 2^-8. Where the heads' number is no power of two, the slopes
    of the largest one below it, then those between. In decimal arithmetic, which no machine's libm can change."""
    whole = 1 << (heads.bit_length() - 1)
    halves = [2 * (head + 1) for head in range(whole)] + [2 * head + 1 for head in range(heads - whole)]
    return np.array([float((-4 * half * Decimal(2).ln() / whole).exp()) for half in halves], np.float32)


def growth_by_position(growth: QueryGrowth, context: int) -> F32:
    """[context, 1]. Computed in decimal arithmetic, which no machine's libm can change."""
    end = growth.offset + context
    steps = [1 + Decimal(growth.factor) * (1 + i).ln() for i in map(Decimal, range(-(-end // growth.period)))]
    by_step = np.array([float(step) for step in steps], np.float32)
    return np.repeat(by_step, growth.period)[growth.offset : end, None].copy()


def _joined(arrays: Sequence[F32]) -> F32:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _by_expert(biases: Sequence[F32 | None]) -> tuple[F32, ...] | None:
    """One array of biases per expert, from biases [experts, outputs], side by side."""
    present = [bias for bias in biases if bias is not None]
    if len(present) not in (0, len(biases)):
        raise ValueError("either all of an expert's fused matrices have a bias or none")
    return tuple(np.concatenate(present, axis=1)) if present else None
