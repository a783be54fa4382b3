"""DeepSeek V2 to V3.2, Kimi K2, GLM 4.7 Flash and GLM 5: latent attention, experts with shared ones beside them.

The keys and values of all heads come from one latent vector per token. Only that vector is cached, with the rotating
lanes of the keys. The matrix that would make a head's keys from it is applied to the head's query instead; the matrix
that would make its values is applied to the head's output. So attention is that of many query heads over one key of
rank + rotating lanes.

DeepSeek V3.2 and GLM 5 attend to a number of tokens that an indexer chooses. Among no more tokens than that it chooses
all, whatever its weights are. The context ends there, and the indexer is not computed.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from surefoot.models.config import (
    KvLayer,
    LatentConfig,
    LayerConfig,
    ModelConfig,
    MoeConfig,
    QueryGrowth,
    inverse_root,
    without_last,
)
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config, hf_rope, num_drafting
from surefoot.models.linear import ExpertLinear, Linear
from surefoot.models.load import Loader
from surefoot.models.routers import gguf_router, hf_groups, hf_router
from surefoot.models.step import Norm, Rope, Step
from surefoot.models.workspace import Features
from surefoot.ops import Groups, RopeForm, Router, YarnScaling, attention, embed, kv_write, norm, rope
from surefoot.ops.arrays import F32
from surefoot.ops.rope import magnitude_scale
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

DEFAULT_GROUPS: Json = {"n_group": 8, "topk_group": 4}  # what transformers takes if a folder of these does not say
GROUPED = ("deepseek_v3", "deepseek_v32")


@dataclass(frozen=True)
class LatentQuery:
    """The projection of queries: from the stream, or from a narrower vector."""

    plain: Linear  # to the lanes that do not rotate
    rotating: Linear  # to the lanes that rotate
    narrow: Linear | None  # from the stream to the narrower vector; None: there is none
    narrow_norm: Norm | None  # of the narrower vector

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.plain, self.rotating) if self.narrow is None else (self.narrow,)

    def features(self, step: Step, x: Features) -> Features:
        if self.narrow is None or self.narrow_norm is None:
            return x
        narrow = step.project(self.narrow, x, "narrow")
        room = step.workspace.features("narrow", narrow.shape, (*self.plain.matrices, *self.rotating.matrices))
        normed = self.narrow_norm
        norm(step.backend, normed.form, narrow, normed.weight, y=room.floats, quantised=room.quantised)
        return room


@dataclass(frozen=True)
class LatentAttention:
    """The attention of one layer."""

    layer: int  # its number
    heads: int  # of queries
    sizes: LatentConfig  # of the latent vector and the lanes
    scale: float  # of the logits
    rope: Rope | None  # of the rotating lanes; None: no lanes rotate
    query_rope: Rope | None  # of the queries' rotating lanes, where they grow; None: the keys' one
    growth: Rope | None  # of the queries' other lanes; None: they do not grow
    query: LatentQuery  # makes the heads' queries
    latent: Linear  # outputs: a token's rotating lanes, then its latent vector
    latent_norm: Norm  # of the latent vector
    keys: ExpertLinear  # one matrix per head, applied to queries
    values: ExpertLinear  # one matrix per head, applied to the heads' outputs
    out: Linear  # projects the heads' outputs to the stream

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (*self.query.reads, self.latent)

    def __call__(self, step: Step, x: Features) -> Features:
        """The heads' outputs, in the form that `out` takes."""
        kv = step.batch.kv[0]
        keys = self._keys(step, x)
        kv_write(step.backend, step.caches[self.layer], keys, keys[:, :, self.sizes.rope_dim :], kv.slots)
        attended = step.floats("attended", step.rows, self.heads, self.sizes.rank)
        attention(
            step.backend, self._queries(step, x), step.caches[self.layer], kv.chunks, self.scale, out=attended
        )  # fmt: skip
        values = step.floats("head values", step.rows * self.heads, self.sizes.value_dim)
        self._per_head(step, self.values, attended.reshape(-1, self.sizes.rank), values)
        return step.features("head values", values.reshape(step.rows, -1), self.out)

    def _keys(self, step: Step, x: Features) -> F32:
        latent = step.project(self.latent, x, "latent")
        vector = latent[:, self.sizes.rope_dim :]
        norm(step.backend, self.latent_norm.form, vector, self.latent_norm.weight, y=vector)
        return _rotated(step, latent.reshape(step.rows, 1, -1), self.rope)

    def _queries(self, step: Step, x: Features) -> F32:
        """The heads' queries in the layout of the latent keys: [rows, heads, rotating lanes + rank]."""
        sizes, count = self.sizes, step.rows * self.heads
        x = self.query.features(step, x)
        queries = step.floats("queries", count, sizes.rope_dim + sizes.rank)
        rotating = step.project(self.query.rotating, x, "turning").reshape(count, sizes.rope_dim)
        embed(step.backend, np.arange(count), rotating, out=queries[:, : sizes.rope_dim])
        plain = step.project(self.query.plain, x, "plain").reshape(count, sizes.plain_dim)
        _rotated(step, plain.reshape(step.rows, self.heads, sizes.plain_dim), self.growth)
        self._per_head(step, self.keys, plain, queries[:, sizes.rope_dim :])
        return _rotated(step, queries.reshape(step.rows, self.heads, -1), self.query_rope or self.rope)

    def _per_head(self, step: Step, matrices: ExpertLinear, x: F32, out: F32) -> None:
        """Multiplies each head's row of x [rows * heads, columns] by the head's matrix."""
        by_head = np.arange(len(x)).reshape(step.rows, self.heads).T.ravel()
        back = np.arange(len(x)).reshape(self.heads, step.rows).T.ravel()
        gathered = step.floats("by head", *x.shape)
        embed(step.backend, by_head, x, out=gathered)
        outputs = step.floats("made by head", len(x), matrices.num_outputs)
        starts = np.arange(self.heads + 1) * step.rows
        matrices.project(step.backend, step.features("by head", gathered, matrices), starts, outputs)
        embed(step.backend, back, outputs, out=out)


def _rotated(step: Step, x: F32, by: Rope | None) -> F32:
    if by is not None:
        rope(step.backend, x, step.table(by), by.form.pairing)
    return x


# ---- configuration ----


def from_gguf(
    checkpoint: Checkpoint, family: str = "deepseek_v2", normalise: bool = False, best_of_group: int | None = None
) -> ModelConfig:
    """normalise: the weights of a token's experts, if the file does not say. best_of_group: experts that score a group;
    None: as routers usually do. Mistral Large 3 is a DeepSeek V3 whose queries grow with their position."""
    gguf = Gguf(checkpoint)
    if not any(name.endswith(".attn_k_b.weight") for name in checkpoint.tensors):
        raise ValueError("the file has attn_kv_b in one piece; convert it again with a recent llama.cpp")
    rope_dim, key_dim = gguf.need("rope.dimension_count"), gguf.need("attention.key_length_mla")
    if rope_dim >= key_dim:
        raise MetadataError(f"rope.dimension_count says {rope_dim}, where less than the keys' {key_dim} is allowed")
    sizes = LatentConfig(
        gguf.need("attention.kv_lora_rank"), key_dim - rope_dim, rope_dim, gguf.need("attention.value_length_mla")
    )
    rope_form = gguf.rope(rope_dim, "neighbours")
    if isinstance(rope_form.scaling, YarnScaling):
        log_multiplier = gguf.get("rope.scaling.yarn_log_multiplier", 0.0)
        scaling = replace(rope_form.scaling, attention_factor=1.0, mscale_all_dim=10 * log_multiplier)
        rope_form = replace(rope_form, scaling=scaling)
    config = without_last(gguf_config(checkpoint, family, "neighbours"), gguf.get("nextn_predict_layers", 0))
    if factor := gguf.get("attention.temperature_scale"):
        config = replace(config, query_growth=QueryGrowth(factor, gguf.need("attention.temperature_length")))
    router = gguf_router(gguf, normalise, best_of_group)
    moe = MoeConfig(router, gguf.get("leading_dense_block_count", 0), shared=True)
    return _seen_whole(_with_latents(config, sizes, rope_form, moe), gguf.get("attention.indexer.top_k"))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    config = _seen_whole(latent_config(hf, "deepseek_v2", _hf_router(hf)), hf.get("index_topk"))
    return replace(config, num_unused=num_drafting(checkpoint, config))


def _seen_whole(config: ModelConfig, num_chosen: int | None) -> ModelConfig:
    """With a context of which each token sees all. num_chosen: tokens that an indexer chooses; None: it has none."""
    return config if num_chosen is None else replace(config, context=min(config.context, num_chosen))


def latent_config(hf: Json, family: str, router: Router) -> ModelConfig:
    sizes = LatentConfig(
        *(need(hf, key) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    )
    pairing: Literal["halves", "neighbours"] = "neighbours" if hf.get("rope_interleave", True) else "halves"
    rope_form = hf_rope(hf, sizes.rope_dim, pairing, "full_attention")
    moe = MoeConfig(router, _num_dense(hf), shared=True)
    return _with_latents(hf_config(hf, family), sizes, rope_form, moe)


def _hf_router(hf: Json) -> Router:
    if hf["model_type"] != "deepseek_v2":
        return hf_router({**DEFAULT_GROUPS, **hf} if hf["model_type"] in GROUPED else hf)
    method = hf.get("topk_method") or "greedy"
    if method not in ("greedy", "group_limited_greedy"):
        raise ValueError(f"experts chosen by {method!r} are not supported: greedy and group_limited_greedy are")
    return Router(
        need(hf, "num_experts_per_tok"),
        normalise=bool(hf.get("norm_topk_prob")),
        scale=hf.get("routed_scaling_factor") or 1.0,
        groups=hf_groups(hf, best=1) if method == "group_limited_greedy" else Groups(),
    )


def _num_dense(hf: Json) -> int:
    """The first layers without experts."""
    kinds = hf.get("mlp_layer_types") or ()
    count: int = hf.get("first_k_dense_replace") or (kinds.index("sparse") if "sparse" in kinds else 0)
    if "dense" in kinds[count:]:
        raise ValueError("models in which later layers have no experts are not supported")
    return count


def _with_latents(config: ModelConfig, sizes: LatentConfig, rope_form: RopeForm, moe: MoeConfig) -> ModelConfig:
    scale, scaling = inverse_root(sizes.plain_dim + sizes.rope_dim), rope_form.scaling
    if isinstance(scaling, YarnScaling) and scaling.mscale_all_dim:
        magnitude = magnitude_scale(scaling.factor, scaling.mscale_all_dim)
        scale *= magnitude * magnitude
    kv = KvLayer(1, sizes.rope_dim + sizes.rank, sizes.rank)
    layers = (LayerConfig(kv, rope_form),) * len(config.layers)
    return replace(config, layers=layers, scale=scale, moe=moe, latent=sizes)


# ---- weights ----


def build(load: Loader) -> Model:
    return load.model(lambda i: load.layer(i, latent_attention(load, i)))


def latent_attention(load: Loader, i: int) -> LatentAttention:
    config, name = load.config, f"blk.{i}.attn"
    sizes, form = config.latent, config.layers[i].rope
    assert sizes is not None
    # In files the latent vector comes before the rotating lanes.
    latent_rows = np.r_[sizes.rank : sizes.rank + sizes.rope_dim, : sizes.rank]
    return LatentAttention(
        layer=i,
        heads=config.heads,
        sizes=sizes,
        scale=config.scale,
        rope=load.rope(form),
        query_rope=load.query_rope(form),
        growth=load.growth(sizes.plain_dim),
        query=_query(load, name, sizes),
        latent=load.rows_of(f"{name}_kv_a_mqa", latent_rows),
        latent_norm=load.norm(f"{name}_kv_a_norm"),
        keys=load.experts(f"{name}_k_b"),
        values=load.experts(f"{name}_v_b"),
        out=load.linear(f"{name}_output"),
    )


def _query(load: Loader, name: str, sizes: LatentConfig) -> LatentQuery:
    """The rows of a head are first those of its plain lanes, then those of its rotating lanes."""
    narrow = load.has(f"{name}_q_a")
    full, lanes = f"{name}_q_b" if narrow else f"{name}_q", sizes.plain_dim + sizes.rope_dim
    rows = np.arange(load.config.heads * lanes).reshape(load.config.heads, lanes)
    return LatentQuery(
        load.rows_of(full, rows[:, : sizes.plain_dim].ravel()),
        load.rows_of(full, rows[:, sizes.plain_dim :].ravel()),
        load.linear(f"{name}_q_a") if narrow else None,
        load.norm(f"{name}_q_a_norm") if narrow else None,
    )
