"""DeepSeek V2: latent attention, experts with shared ones beside them.

All heads' keys and values come from one latent vector a token, and only that is kept, with the keys' rotating lanes.
The matrix that would make a head's keys from it is applied to the head's query instead, and the one that would make its
values to what the head has seen: attention of many queries over one key of rank + rotating lanes.
"""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.config import KvLayer, LatentConfig, LayerConfig, ModelConfig, MoeConfig, inverse_root
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts, FeedForward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config, hf_rope
from surefoot.models.linear import ExpertLinear, Linear
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Rope, Step
from surefoot.models.workspace import Features
from surefoot.ops import RopeForm, Router, Scoring, YarnScaling, attention, embed, kv_write, norm, rope
from surefoot.ops.arrays import F32
from surefoot.ops.rope import magnitude_scale
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need


@dataclass(frozen=True)
class Query:
    """The heads' lanes that do not rotate, and those that do; from the stream, or from a narrower vector of its own."""

    plain: Linear
    turning: Linear
    narrow: Linear | None
    narrow_norm: Norm | None

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.plain, self.turning) if self.narrow is None else (self.narrow,)

    def features(self, step: Step, x: Features) -> Features:
        if self.narrow is None or self.narrow_norm is None:
            return x
        narrow = step.project(self.narrow, x, "narrow")
        room = step.workspace.features("narrow", narrow.shape, (*self.plain.matrices, *self.turning.matrices))
        normed = self.narrow_norm
        norm(step.backend, normed.form, narrow, normed.weight, y=room.floats, quantised=room.quantised)
        return room


@dataclass(frozen=True)
class LatentAttention:
    """`latent` gives a token's rotating lanes, then its latent vector; `keys` and `values` are matrices per head."""

    layer: int
    heads: int
    sizes: LatentConfig
    scale: float
    rope: Rope
    query: Query
    latent: Linear
    latent_norm: Norm
    keys: ExpertLinear
    values: ExpertLinear
    out: Linear

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (*self.query.reads, self.latent)

    def __call__(self, step: Step, x: Features) -> Features:
        """What the heads saw, ready for `out`."""
        kv = step.batch.kv[0]
        keys = self._keys(step, x)
        kv_write(step.backend, step.caches[self.layer], keys, keys[:, :, self.sizes.rope_dim :], kv.slots)
        seen = step.floats("attended", step.rows, self.heads, self.sizes.rank)
        attention(
            step.backend, self._queries(step, x), step.caches[self.layer], kv.chunks, self.scale, out=seen
        )  # fmt: skip
        values = step.floats("head values", step.rows * self.heads, self.sizes.value_dim)
        self._per_head(step, self.values, seen.reshape(-1, self.sizes.rank), values)
        return step.features("head values", values.reshape(step.rows, -1), self.out)

    def _keys(self, step: Step, x: Features) -> F32:
        made = step.project(self.latent, x, "latent")
        vector = made[:, self.sizes.rope_dim :]
        norm(step.backend, self.latent_norm.form, vector, self.latent_norm.weight, y=vector)
        return self._turned(step, made.reshape(step.rows, 1, -1))

    def _queries(self, step: Step, x: Features) -> F32:
        """The heads' queries as the latent keys are laid out: [rows, heads, rotating lanes + rank]."""
        sizes, count = self.sizes, step.rows * self.heads
        x = self.query.features(step, x)
        queries = step.floats("queries", count, sizes.rope_dim + sizes.rank)
        turning = step.project(self.query.turning, x, "turning").reshape(count, sizes.rope_dim)
        embed(step.backend, np.arange(count), turning, out=queries[:, : sizes.rope_dim])
        plain = step.project(self.query.plain, x, "plain").reshape(count, sizes.plain_dim)
        self._per_head(step, self.keys, plain, queries[:, sizes.rope_dim :])
        return self._turned(step, queries.reshape(step.rows, self.heads, -1))

    def _turned(self, step: Step, x: F32) -> F32:
        rope(step.backend, x, step.table(self.rope), self.rope.form.pairing)
        return x

    def _per_head(self, step: Step, matrices: ExpertLinear, x: F32, out: F32) -> None:
        """Each head's row of x [rows * heads, columns] through the head's matrix."""
        by_head = np.arange(len(x)).reshape(step.rows, self.heads).T.ravel()
        back = np.arange(len(x)).reshape(self.heads, step.rows).T.ravel()
        gathered = step.floats("by head", *x.shape)
        embed(step.backend, by_head, x, out=gathered)
        made = step.floats("made by head", len(x), matrices.num_outputs)
        starts = np.arange(self.heads + 1) * step.rows
        matrices.project(step.backend, step.features("by head", gathered, matrices), starts, made)
        embed(step.backend, back, made, out=out)


@dataclass(frozen=True)
class Layer:
    """`ffn` is all there is in the first layers, and the shared experts in the others."""

    attention_norm: Norm
    attention: LatentAttention
    ffn_norm: Norm
    ffn: FeedForward
    experts: Experts | None

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, *self.attention.reads)
        step.add_projected(self.attention.out, self.attention(step, x))
        readers = (self.ffn.gate_up,) if self.experts is None else (self.ffn.gate_up, self.experts.gate)
        x = step.norm(self.ffn_norm, *readers)
        step.add_projected(self.ffn.down, self.ffn(step, x))
        if self.experts is not None:
            self.experts.add_to_stream(step, x)


# ---- configuration ----


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    if "blk.0.attn_k_b.weight" not in checkpoint.tensors:
        raise ValueError("the file has attn_kv_b in one piece; convert it anew with a recent llama.cpp")
    rope_dim, key_dim = gguf.need("rope.dimension_count"), gguf.need("attention.key_length_mla")
    if rope_dim >= key_dim:
        raise MetadataError(f"rope.dimension_count says {rope_dim}, where less than the keys' {key_dim} is allowed")
    sizes = LatentConfig(
        gguf.need("attention.kv_lora_rank"), key_dim - rope_dim, rope_dim, gguf.need("attention.value_length_mla")
    )
    router = Router(
        gguf.need("expert_used_count"),
        Scoring.SIGMOID if gguf.get("expert_gating_func", 1) == 2 else Scoring.SOFTMAX_ALL,
        gguf.get("expert_weights_norm", False),
        gguf.get("expert_weights_scale", 1.0) or 1.0,
    )
    turning = gguf.rope(rope_dim, "neighbours")
    if isinstance(turning.scaling, YarnScaling):
        log_multiplier = gguf.get("rope.scaling.yarn_log_multiplier", 0.0)
        scaling = replace(turning.scaling, attention_factor=1.0, mscale_all_dim=10 * log_multiplier)
        turning = replace(turning, scaling=scaling)
    config = gguf_config(checkpoint, "deepseek_v2", "neighbours")
    moe = MoeConfig(router, gguf.get("leading_dense_block_count", 0))
    return _with_latents(config, sizes, turning, moe)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    given = checkpoint.metadata
    if given.get("topk_method", "greedy") != "greedy":
        raise ValueError(f"experts chosen by {given['topk_method']!r} are not supported")
    sizes = LatentConfig(
        *(need(given, key) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    )
    router = Router(
        need(given, "num_experts_per_tok"),
        normalise=bool(given.get("norm_topk_prob")),
        scale=given.get("routed_scaling_factor") or 1.0,
    )
    turning = hf_rope(given, sizes.rope_dim, "neighbours", "full_attention")
    moe = MoeConfig(router, given.get("first_k_dense_replace") or 0)
    return _with_latents(hf_config(given, "deepseek_v2"), sizes, turning, moe)


def _with_latents(config: ModelConfig, sizes: LatentConfig, turning: RopeForm, moe: MoeConfig) -> ModelConfig:
    scale, scaling = inverse_root(sizes.plain_dim + sizes.rope_dim), turning.scaling
    if isinstance(scaling, YarnScaling) and scaling.mscale_all_dim:
        scale *= magnitude_scale(scaling.factor, scaling.mscale_all_dim) ** 2
    kv = KvLayer(1, sizes.rope_dim + sizes.rank, sizes.rank)
    layers = (LayerConfig(kv, turning),) * len(config.layers)
    return replace(config, layers=layers, scale=scale, moe=moe, latent=sizes)


# ---- weights ----


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> Layer:
    moe = load.config.moe
    assert moe is not None
    dense = i < moe.num_dense
    return Layer(
        load.norm(f"blk.{i}.attn_norm"),
        _attention(load, i),
        load.norm(f"blk.{i}.ffn_norm"),
        load.feed_forward(i, "" if dense else "_shexp"),
        None if dense else load.mixture(i),
    )


def _attention(load: Loader, i: int) -> LatentAttention:
    config, name = load.config, f"blk.{i}.attn"
    sizes, turning = config.latent, load.rope(config.layers[i].rope)
    assert sizes is not None
    assert turning is not None
    # The files have a latent vector before its token's rotating lanes.
    latent_rows = np.r_[sizes.rank : sizes.rank + sizes.rope_dim, : sizes.rank]
    return LatentAttention(
        layer=i,
        heads=config.heads,
        sizes=sizes,
        scale=config.scale,
        rope=turning,
        query=_query(load, name, sizes),
        latent=load.rows_of(f"{name}_kv_a_mqa", latent_rows),
        latent_norm=load.norm(f"{name}_kv_a_norm"),
        keys=load.experts(f"{name}_k_b"),
        values=load.experts(f"{name}_v_b"),
        out=load.linear(f"{name}_output"),
    )


def _query(load: Loader, name: str, sizes: LatentConfig) -> Query:
    """A head's rows are its plain lanes', then its rotating lanes'."""
    narrow = load.has(f"{name}_q_a")
    full, lanes = f"{name}_q_b" if narrow else f"{name}_q", sizes.plain_dim + sizes.rope_dim
    rows = np.arange(load.config.heads * lanes).reshape(load.config.heads, lanes)
    return Query(
        load.rows_of(full, rows[:, : sizes.plain_dim].ravel()),
        load.rows_of(full, rows[:, sizes.plain_dim :].ravel()),
        load.linear(f"{name}_q_a") if narrow else None,
        load.norm(f"{name}_q_a_norm") if narrow else None,
    )
