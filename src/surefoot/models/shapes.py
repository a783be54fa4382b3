"""Checks that a checkpoint has the tensors that its metadata announce, before anything is built or read.

A size in an expected shape is a number, or the name of a size that the metadata do not give, such as the number of
experts. The same name must have the same value everywhere in a layer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surefoot.models.config import (
    ENCODERS,
    DeltaConfig,
    KvLayer,
    LatentConfig,
    ModelConfig,
    ScanConfig,
    SharedKv,
    StateLayer,
)
from surefoot.models.load import last_norm
from surefoot.ops import FactorScaling, RopeForm
from surefoot.weights.checkpoint import Tensor
from surefoot.weights.metadata import MetadataError

Tensors = Mapping[str, Tensor]
Shape = tuple[int | str, ...]

LAYER_NAME = re.compile(r"blk\.(\d{1,6})\.")
LANES, MAX_LANES = 16, 576  # of keys and values: what the attention kernels take
AROUND = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
AFTER = ("post_attention_norm", "post_ffw_norm")
NORMS = {
    "bert": ("attn_output_norm", "layer_output_norm"),
    "gemma2": AROUND,
    "gemma3": AROUND,
    "gemma3n": AROUND,
    "gemma4": AROUND,
    "olmo2": AFTER,
    "olmo3": AFTER,
    "exaone4": AFTER,
    "glm4_moe": ("attn_norm", "post_attention_norm"),
    "gpt_oss": ("attn_norm", "post_attention_norm"),
    "qwen3_5": ("attn_norm", "post_attention_norm"),
    "qwen3_5_moe": ("attn_norm", "post_attention_norm"),
    "qwen3_next": ("attn_norm", "post_attention_norm"),
    "seed_oss": ("attn_norm", "post_attention_norm"),
    "nemotron_h": ("attn_norm",),
}
ALTERNATING = ("nemotron_h",)  # families whose layers are a mixer or feed-forward, not both
# Families with a feed-forward beside the experts: the vectors that this takes, and their sizes.
BESIDE = {
    "gemma4": {
        "post_ffw_norm_1.weight": "width",
        "post_ffw_norm_2.weight": "width",
        "pre_ffw_norm_2.weight": "width",
        "ffn_gate_inp.scale": "width",
        "ffn_down_exps.scale": "experts",
    }
}
# Families that norm the queries of all heads together, and their keys.
NORM_ALL_HEADS = ("bert", "minimax_m2", "olmo2", "olmo3")
USUAL_NORMS = ("attn_norm", "ffn_norm")


@dataclass(frozen=True)
class ExpectedTensor:
    """A tensor that the checkpoint must have."""

    name: str  # GGUF's name
    shape: Shape  # in numpy's order
    optional: bool = False  # it may be missing


def check_shapes(config: ModelConfig, tensors: Tensors) -> None:
    """Raises MetadataError for the first tensor that is missing or has another shape than the metadata say."""
    _check_sizes(config)
    _check_layers(config, tensors)
    _check_tensors(_outside_layers(config), tensors)
    for layer in range(len(config.layers)):
        sizes = _check_tensors(_in_layer(config, layer, tensors), tensors)
        _check_experts(config, layer, sizes)
    if config.drafting_layers:
        _check_tensors(_mtp(config, tensors), tensors)


def _check_sizes(config: ModelConfig) -> None:
    if not config.attention_layers:
        raise MetadataError("no layer has attention: models of states alone are not supported")
    for number in config.attention_layers:
        kv, layer = config.kv(number), config.kept_layers[number]
        if kv.heads < 1 or config.heads % kv.heads:
            raise MetadataError(
                f"the metadata say {config.heads} heads for {kv.heads} heads of keys and values, where a multiple is "
                "allowed"
            )
        for lanes in (kv.key_dim, kv.value_dim):
            if lanes % LANES or lanes > MAX_LANES:
                raise MetadataError(
                    f"the metadata say heads of {lanes} lanes, where a multiple of {LANES} up to {MAX_LANES} is allowed"
                )
        if config.latent is None and kv.key_dim != kv.value_dim:
            raise MetadataError(
                f"the metadata say keys of {kv.key_dim} lanes and values of {kv.value_dim}, where the same is allowed"
            )
        _check_rope(layer.rope, kv, config.latent)


def _check_rope(rope: RopeForm | None, kv: KvLayer, latent: LatentConfig | None) -> None:
    if rope is None:
        return
    most = kv.key_dim if latent is None else latent.rope_dim
    if rope.dim > most:
        raise MetadataError(f"the metadata say that {rope.dim} lanes of a head rotate, where it has {most}")
    if isinstance(rope.scaling, FactorScaling) and len(rope.scaling.factors) != rope.dim // 2:
        raise MetadataError(
            f"{len(rope.scaling.factors)} factors of rotary frequencies for {rope.dim // 2} frequencies"
        )


def _check_layers(config: ModelConfig, tensors: Tensors) -> None:
    numbers = {int(match[1]) for name in tensors if (match := LAYER_NAME.match(name))}
    count = max(numbers, default=-1) + 1
    if count - config.num_unused != len(config.layers):
        raise MetadataError(
            f"the metadata say {len(config.layers)} layers, and the file has tensors of {count}: it is damaged, or a "
            "part of a model; fetch it again"
        )


def _check_tensors(wanted: Iterator[ExpectedTensor], tensors: Tensors) -> Mapping[str, int]:
    """The sizes that have names."""
    sizes: dict[str, int] = {}
    for spec in wanted:
        tensor = tensors.get(spec.name)
        if tensor is None and spec.optional:
            continue
        if tensor is None:
            raise MetadataError(
                f"the file has no tensor {spec.name}: it is damaged or of another model; fetch it again"
            )
        expected = tuple(_size(size, sizes, actual) for size, actual in zip(spec.shape, tensor.shape, strict=False))
        if tuple(tensor.shape) != expected or len(spec.shape) != len(tensor.shape):
            shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in spec.shape)
            raise MetadataError(
                f"{spec.name} has shape {tuple(tensor.shape)}, where the metadata say {shape}: the file is damaged; "
                "fetch it again"
            )
    return sizes


def _size(size: int | str, sizes: dict[str, int], actual: int) -> int:
    return sizes.setdefault(size, actual) if isinstance(size, str) else size


def _check_experts(config: ModelConfig, layer: int, sizes: Mapping[str, int]) -> None:
    experts = sizes.get("experts")
    if experts is None or config.moe is None:
        return
    top_k, groups = config.moe.router.top_k, config.moe.router.groups
    size = experts // groups.count
    if size * groups.count != experts or size < groups.best or not 0 < groups.kept <= groups.count:
        raise MetadataError(
            f"the metadata say {groups.kept} of {groups.count} groups, and layer {layer} has {experts} experts"
        )
    if not 0 < top_k <= size * groups.kept:
        raise MetadataError(
            f"the metadata say {top_k} experts for a token, and layer {layer} has {size * groups.kept} to choose among"
        )


# ---- the expected tensors ----


def expected_tensors(config: ModelConfig, tensors: Tensors) -> Iterator[ExpectedTensor]:
    """All but the drafting layer's. tensors: where a family takes one of several, those that are there."""
    yield from _outside_layers(config)
    for layer in range(len(config.layers)):
        yield from _in_layer(config, layer, tensors)


def _outside_layers(config: ModelConfig) -> Iterator[ExpectedTensor]:
    yield ExpectedTensor("token_embd.weight", (config.vocab_size, config.width))
    yield ExpectedTensor(f"{last_norm(config)}.weight", (config.width,))
    yield ExpectedTensor("output.weight", (config.vocab_size, config.width), optional=True)
    yield ExpectedTensor("output.bias", (config.vocab_size,), optional=True)
    yield ExpectedTensor("dense_2.weight", ("dense", config.width), optional=True)
    yield ExpectedTensor("dense_3.weight", ("vector", "dense"), optional=True)
    if config.family in ENCODERS:  # which norm the embeddings
        placed = config.alibi or _rotates(config)
        yield ExpectedTensor("position_embd.weight", ("positions", config.width), optional=placed)
        yield ExpectedTensor("token_types.weight", ("types", config.width), optional=True)
        yield from _norm(config, "token_embd_norm")
    if config.layer_lanes:
        lanes = config.layer_lanes * len(config.layers)
        yield ExpectedTensor("per_layer_token_embd.weight", (config.vocab_size, lanes))
        yield ExpectedTensor("per_layer_model_proj.weight", (lanes, config.width))
        yield ExpectedTensor("per_layer_proj_norm.weight", (config.layer_lanes,))

    if config.streams is not None:
        for name in ("altup_proj", "altup_unembd_proj"):
            yield ExpectedTensor(f"{name}.weight", (config.streams.count - 1, config.width, config.width))


def _in_layer(config: ModelConfig, layer: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    name, moe = f"blk.{layer}", config.moe
    norms = NORMS.get(config.family, USUAL_NORMS)
    for norm in norms[1:] if config.family == "modernbert" and layer == 0 else norms:
        yield from _norm(config, f"{name}.{norm}")
    yield from _mixer(config, layer, tensors)
    if config.layer_lanes:
        yield from _layer_embedding(name, config.layer_lanes, config.width)
    if config.streams is not None:
        yield from _streams(config.streams.count, name, config.width)
    if config.family in ALTERNATING and config.kept_layers[layer].kv != StateLayer(()):
        return
    dense = moe is None or not moe.has_experts(layer)
    if dense or config.family in BESIDE:
        yield from _feed_forward(config, name, "", config.kept_layers[layer].ffn or config.ffn, tensors)
    if moe is None or dense:
        return
    yield from _experts(config, name, tensors)
    for extra, size in BESIDE.get(config.family, {}).items():
        yield ExpectedTensor(f"{name}.{extra}", (config.width if size == "width" else size,))
    if f"{name}.ffn_gate_inp_shexp.weight" in tensors:  # llama.cpp writes a vector, Hugging Face a matrix of one row
        ndim = len(tensors[f"{name}.ffn_gate_inp_shexp.weight"].shape)
        yield ExpectedTensor(f"{name}.ffn_gate_inp_shexp.weight", (1, config.width)[2 - ndim :])
    if moe.shared:
        yield from _feed_forward(config, name, "_shexp", "shared", tensors)


def _norm(config: ModelConfig, name: str) -> Iterator[ExpectedTensor]:
    yield ExpectedTensor(f"{name}.weight", (config.width,))
    if config.norm.kind == "layer":
        yield ExpectedTensor(f"{name}.bias", (config.width,), optional=config.family == "modernbert")


def _rotates(config: ModelConfig) -> bool:
    return all(layer.rope is not None for layer in config.layers)


def _mtp(config: ModelConfig, tensors: Tensors) -> Iterator[ExpectedTensor]:
    number = len(config.layers)
    name = f"blk.{number}.nextn"
    yield from _matrix(f"{name}.eh_proj", config.width, 2 * config.width)
    for norm in ("enorm", "hnorm"):
        yield ExpectedTensor(f"{name}.{norm}.weight", (config.width,))
    yield ExpectedTensor(f"{name}.shared_head_norm.weight", (config.width,), optional=True)
    yield from _in_layer(config, number, tensors)


def _mixer(config: ModelConfig, layer: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    name, state = f"blk.{layer}", config.kept_layers[layer].kv
    if isinstance(state, StateLayer):
        yield from _state(config, state, name, tensors)
    elif config.latent is None:
        yield from _attention(config, layer, tensors)
    else:
        yield from _latent_attention(config, config.latent, name, tensors)


def _state(config: ModelConfig, state: StateLayer, name: str, tensors: Tensors) -> Iterator[ExpectedTensor]:
    if not state.shapes:
        return
    if config.scan is not None:
        yield from _scan(config.scan, name, config.width, tensors)
    elif config.delta is not None and config.delta.by_lane:
        yield from _kimi_delta(config.delta, name, config.width, tensors)
    elif config.delta is not None:
        yield from _delta_net(config.delta, name, config.width, tensors)
    else:
        yield from _short_conv(config, state, f"{name}.shortconv")


def _attention(config: ModelConfig, layer: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    name, kv = f"blk.{layer}.attn", config.kv(layer)
    queries, keys, values = config.heads * kv.key_dim, kv.heads * kv.key_dim, kv.heads * kv.value_dim
    if config.delta is not None:
        queries *= 2  # each head's queries and gates
    if f"{name}_qkv.weight" in tensors:
        parts = {"qkv": queries + keys + values}
    elif isinstance(config.kept_layers[layer].kv, SharedKv):
        parts = {"q": queries}
    elif config.family == "gemma4" and f"{name}_v.weight" not in tensors:  # keys are values too
        parts = {"q": queries, "k": keys}
    else:
        parts = {"q": queries, "k": keys, "v": values}
    for part, rows in parts.items():
        yield from _matrix(f"{name}_{part}", rows, config.width)
    yield from _matrix(f"{name}_output", config.width, config.heads * kv.value_dim)
    together = config.family in NORM_ALL_HEADS
    for part, lanes in (("q", queries), ("k", keys)):
        for kind in ("weight", "bias"):
            shape = (lanes if together else kv.key_dim,)
            yield ExpectedTensor(f"{name}_{part}_norm.{kind}", shape, optional=True)
    yield ExpectedTensor(f"{name}_sinks.weight", (config.heads,), optional=True)
    if config.alibi:
        for kind in ("weight", "bias"):
            yield ExpectedTensor(f"{name}_norm_2.{kind}", (config.width,), optional=True)


def _short_conv(config: ModelConfig, state: StateLayer, name: str) -> Iterator[ExpectedTensor]:
    (((num_before, width),)) = state.shapes
    yield from _matrix(f"{name}.in_proj", 3 * width, config.width)
    yield from _matrix(f"{name}.conv", width, num_before + 1)
    yield from _matrix(f"{name}.out_proj", config.width, width)


def _delta_net(sizes: DeltaConfig, name: str, width: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    """Some files have queries, keys, values and gates in one matrix, some the betas and alphas."""
    values = sizes.heads * sizes.value_dim
    rows = {"attn_qkv": sizes.conv_width, "attn_gate": values, "ssm_beta": sizes.heads, "ssm_alpha": sizes.heads}
    if f"{name}.ssm_in.weight" in tensors:
        rows = {"ssm_in": sizes.conv_width + values, "ssm_ba": 2 * sizes.heads}
    elif f"{name}.ssm_ba.weight" in tensors:
        rows = {"attn_qkv": sizes.conv_width, "attn_gate": values, "ssm_ba": 2 * sizes.heads}
    for part, count in rows.items():
        yield from _matrix(f"{name}.{part}", count, width)
    yield from _matrix(f"{name}.ssm_conv1d", sizes.conv_width, sizes.num_taps)
    decay = f"{name}.ssm_a"  # GGUF files have its exponential
    yield ExpectedTensor(decay if decay in tensors else f"{decay}_log.weight", (sizes.heads,))
    yield ExpectedTensor(f"{name}.ssm_dt.bias", (sizes.heads,))
    yield ExpectedTensor(f"{name}.ssm_norm.weight", (sizes.value_dim,))
    yield from _matrix(f"{name}.ssm_out", width, values)


def _kimi_delta(sizes: DeltaConfig, name: str, width: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    """Files have the convolution in one tensor or three, and the rates and convolutions in shapes with ones."""
    lanes = sizes.heads * sizes.key_dim
    for part in ("attn_q", "attn_k", "attn_v"):
        yield from _matrix(f"{name}.{part}", lanes, width)
    for part in ("f", "g"):
        yield from _matrix(f"{name}.ssm_{part}_a", "narrow", width)
        yield from _matrix(f"{name}.ssm_{part}_b", lanes, "narrow")
    yield from _matrix(f"{name}.ssm_beta", sizes.heads, width)
    is_whole = f"{name}.ssm_conv1d.weight" in tensors
    for part in ("",) if is_whole else ("_q", "_k", "_v"):
        conv = f"{name}.ssm_conv1d{part}.weight"
        columns = sizes.conv_width if is_whole else lanes
        yield ExpectedTensor(conv, _with_ones(tensors, conv, columns, sizes.num_taps))
    decay = f"{name}.ssm_a"  # GGUF files have its exponential
    decay = decay if decay in tensors else f"{decay}_log.weight"
    yield ExpectedTensor(decay, _with_ones(tensors, decay, sizes.heads))
    yield ExpectedTensor(f"{name}.ssm_dt.bias", (lanes,))
    yield ExpectedTensor(f"{name}.ssm_norm.weight", (sizes.value_dim,))
    yield from _matrix(f"{name}.attn_output", width, lanes)


def _with_ones(tensors: Tensors, name: str, *sizes: int) -> Shape:
    """The sizes, with dimensions of one between them where the tensor has such."""
    shape, left = list[int](), list(sizes)
    for size in tensors[name].shape if name in tensors else ():
        shape.append(1 if size == 1 and left[:1] != [1] else left.pop(0) if left else 0)
    return tuple(shape) if shape and not left else sizes


def _scan(sizes: ScanConfig, name: str, width: int, tensors: Tensors) -> Iterator[ExpectedTensor]:
    """GGUF files have the rates and what is skipped as columns, and the norm's weights in a row for each group."""
    from_gguf, groups = f"{name}.ssm_a" in tensors, sizes.groups
    yield from _matrix(f"{name}.ssm_in", sizes.inner + sizes.conv_width + sizes.heads, width)
    yield from _matrix(f"{name}.ssm_conv1d", sizes.conv_width, sizes.num_taps)
    for part in ("ssm_a", "ssm_d") if from_gguf else ("ssm_a_log.weight", "ssm_d.weight"):
        yield ExpectedTensor(f"{name}.{part}", (sizes.heads, 1) if from_gguf else (sizes.heads,))
    weights: Shape = (groups, sizes.inner // groups) if from_gguf else (sizes.inner,)
    yield ExpectedTensor(f"{name}.ssm_norm.weight", weights)
    yield ExpectedTensor(f"{name}.ssm_dt.bias", (sizes.heads,))
    yield from _matrix(f"{name}.ssm_out", width, sizes.inner)


def _latent_attention(
    config: ModelConfig, sizes: LatentConfig, layer: str, tensors: Tensors
) -> Iterator[ExpectedTensor]:
    name, lanes = f"{layer}.attn", sizes.plain_dim + sizes.rope_dim
    narrow = f"{name}_q_a.weight" in tensors
    if narrow:
        yield from _matrix(f"{name}_q_a", "narrow", config.width)
        yield ExpectedTensor(f"{name}_q_a_norm.weight", ("narrow",))
    yield from _matrix(
        f"{name}_q_b" if narrow else f"{name}_q", config.heads * lanes, "narrow" if narrow else config.width
    )
    yield from _matrix(f"{name}_kv_a_mqa", sizes.rank + sizes.rope_dim, config.width)
    yield ExpectedTensor(f"{name}_kv_a_norm.weight", (sizes.rank,))
    yield ExpectedTensor(f"{name}_k_b.weight", (config.heads, sizes.rank, sizes.plain_dim))
    yield ExpectedTensor(f"{name}_v_b.weight", (config.heads, sizes.value_dim, sizes.rank))
    yield from _matrix(f"{name}_output", config.width, config.heads * sizes.value_dim)


def _feed_forward(
    config: ModelConfig, layer: str, suffix: str, inner: int | str, tensors: Tensors
) -> Iterator[ExpectedTensor]:
    """Gate and up may be one matrix, under the name of up."""
    gate, up, down = (f"{layer}.ffn_{part}{suffix}" for part in ("gate", "up", "down"))
    if not config.glu.gates:
        yield from _matrix(up, inner, config.width)
    elif f"{gate}.weight" in tensors:
        yield from _matrix(gate, inner, config.width)
        yield from _matrix(up, inner, config.width)
    else:
        yield from _matrix(up, 2 * inner if isinstance(inner, int) else f"both {inner}", config.width)
    yield from _matrix(down, config.width, inner)


def _layer_embedding(layer: str, lanes: int, width: int) -> Iterator[ExpectedTensor]:
    yield from _matrix(f"{layer}.inp_gate", lanes, width)
    yield from _matrix(f"{layer}.proj", width, lanes)
    yield ExpectedTensor(f"{layer}.post_norm.weight", (width,))


def _streams(count: int, layer: str, width: int) -> Iterator[ExpectedTensor]:
    for name, shape in {
        "altup_router": (count, width),
        "altup_router_norm": (width,),
        "altup_predict_coef": (count * count, count),
        "altup_correct_coef": (count, count),
        "altup_correct_scale": (width,),
        "laurel_l": ("narrow", width),
        "laurel_r": (width, "narrow"),
        "laurel_post_norm": (width,),
    }.items():
        yield ExpectedTensor(f"{layer}.{name}.weight", shape)


def _experts(config: ModelConfig, layer: str, tensors: Tensors) -> Iterator[ExpectedTensor]:
    """Gate and up may be one tensor."""
    width, fused = config.width, f"{layer}.ffn_gate_up_exps.weight" in tensors
    yield from _matrix(f"{layer}.ffn_gate_inp", "experts", width)
    bias = f"{layer}.exp_probs_b.bias"  # ERNIE's files have a matrix of one row
    ndim = len(tensors[bias].shape) if bias in tensors else 1
    yield ExpectedTensor(bias, (1, "experts")[2 - ndim :], optional=True)
    both = (("gate_up", "both", width),) if fused else (("gate", "inner", width), ("up", "inner", width))
    if not config.glu.gates:
        both = (("up", "inner", width),)
    for part, rows, columns in (*both, ("down", width, "inner")):
        yield ExpectedTensor(f"{layer}.ffn_{part}_exps.weight", ("experts", rows, columns))
        yield ExpectedTensor(f"{layer}.ffn_{part}_exps.bias", ("experts", rows), optional=True)


def _matrix(name: str, rows: int | str, columns: int | str) -> Iterator[ExpectedTensor]:
    yield ExpectedTensor(f"{name}.weight", (rows, columns))
    yield ExpectedTensor(f"{name}.bias", (rows,), optional=True)
