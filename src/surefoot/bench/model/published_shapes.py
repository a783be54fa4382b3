"""The published shapes of hybrid models and of models with experts, as metadata and tensors of a GGUF file.

Types are those of the files that people run, in 4 bits: matrices in Q4_0, gpt-oss's experts in MXFP4, embeddings and
head in Q8_0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
FLOATS = "F32"
GEMMA4_NORMS = (
    "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2",
    "pre_ffw_norm_2",
)  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of random weights."""

    name: str  # GGUF's
    shape: Shape  # in numpy's order
    kind: str  # ggml's type


@dataclass(frozen=True)
class PublishedShape:
    """A model without weights."""

    name: str  # of its file
    architecture: str  # GGUF's name of the family
    vocab_size: int
    metadata: Mapping[str, Any] = field(repr=False)  # by keys without the architecture
    tensors: tuple[TensorSpec, ...] = field(repr=False)


def _matrices(block: str, kind: str, sizes: Mapping[str, Shape]) -> Iterator[TensorSpec]:
    for name, shape in sizes.items():
        yield TensorSpec(f"{block}.{name}.weight", shape, kind)


def _vectors(block: str, sizes: Mapping[str, int | Shape]) -> Iterator[TensorSpec]:
    for name, size in sizes.items():
        yield TensorSpec(f"{block}.{name}", size if isinstance(size, tuple) else (size,), FLOATS)


def _whole(vocab: int, width: int, *, tied: bool, norm: str = "output_norm") -> Iterator[TensorSpec]:
    for name in ("token_embd",) if tied else ("token_embd", "output"):
        yield TensorSpec(f"{name}.weight", (vocab, width), "Q8_0")
    yield TensorSpec(f"{norm}.weight", (width,), FLOATS)


def _feed_forward(width: int, ffn: int) -> dict[str, Shape]:
    return {"ffn_gate": (ffn, width), "ffn_up": (ffn, width), "ffn_down": (width, ffn)}


def _attention(width: int, heads: int, kv_heads: int, head_dim: int, *, has_values: bool = True) -> dict[str, Shape]:
    sizes = {"attn_q": (heads * head_dim, width), "attn_k": (kv_heads * head_dim, width)}
    sizes |= {"attn_v": (kv_heads * head_dim, width)} if has_values else {}
    return {**sizes, "attn_output": (width, heads * head_dim)}


def lfm2_1_2b(num_layers: int = 16) -> PublishedShape:
    """Ten layers of a short convolution, six of attention."""
    width, heads, kv_heads, head_dim, ffn, taps, vocab = 2048, 32, 8, 64, 8192, 3, 65536
    attends = [i in (2, 5, 8, 10, 12, 14) for i in range(num_layers)]

    def layer(block: str) -> Iterator[TensorSpec]:
        yield from _matrices(block, "Q4_0", _feed_forward(width, ffn))
        yield from _vectors(block, {"attn_norm.weight": width, "ffn_norm.weight": width})
        if attends[int(block.removeprefix("blk."))]:
            yield from _matrices(block, "Q4_0", _attention(width, heads, kv_heads, head_dim))
            yield from _vectors(block, {"attn_q_norm.weight": head_dim, "attn_k_norm.weight": head_dim})
        else:
            yield from _matrices(block, "Q4_0", {"shortconv.in_proj": (3 * width, width)})
            yield from _matrices(block, "Q4_0", {"shortconv.out_proj": (width, width)})
            yield from _vectors(block, {"shortconv.conv.weight": (width, taps)})

    metadata = _common(num_layers, width, 128000, ffn, heads, 1e-5, 1e6) | {
        "attention.head_count_kv": [kv_heads if attended else 0 for attended in attends], "shortconv.l_cache": taps,
    }  # fmt: skip
    whole = _whole(vocab, width, tied=True, norm="token_embd_norm")
    return _shape("lfm2-1.2b", "lfm2", vocab, metadata, whole, layer, num_layers)


def qwen3_5_2b(num_layers: int = 24) -> PublishedShape:
    """Three layers of the gated delta rule to one of gated attention, without the layer that drafts."""
    width, heads, kv_heads, head_dim, ffn, vocab = 2048, 8, 2, 256, 6144, 248320
    delta_heads, delta_dim, taps = 16, 128, 4
    values = delta_heads * delta_dim

    def layer(block: str) -> Iterator[TensorSpec]:
        yield from _matrices(block, "Q4_0", _feed_forward(width, ffn))
        yield from _vectors(block, {"attn_norm.weight": width, "post_attention_norm.weight": width})
        if (int(block.removeprefix("blk.")) + 1) % 4 == 0:
            attention = _attention(width, heads, kv_heads, head_dim) | {"attn_q": (2 * heads * head_dim, width)}
            yield from _matrices(block, "Q4_0", attention)
            yield from _vectors(block, {"attn_q_norm.weight": head_dim, "attn_k_norm.weight": head_dim})
        else:
            inner = {"attn_qkv": (3 * values, width), "attn_gate": (values, width), "ssm_out": (width, values)}
            yield from _matrices(block, "Q4_0", inner)
            yield from _matrices(block, "Q8_0", {f"ssm_{part}": (delta_heads, width) for part in ("alpha", "beta")})
            yield from _vectors(block, {"ssm_conv1d.weight": (3 * values, taps), "ssm_norm.weight": delta_dim})
            yield from _vectors(block, {"ssm_a": delta_heads, "ssm_dt.bias": delta_heads})

    metadata = _common(num_layers, width, 262144, ffn, heads, 1e-6, 1e7) | {
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim, "attention.value_length": head_dim,
        "rope.dimension_count": head_dim // 4, "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4, "ssm.conv_kernel": taps, "ssm.state_size": delta_dim,
        "ssm.group_count": delta_heads, "ssm.time_step_rank": delta_heads, "ssm.inner_size": values,
    }  # fmt: skip
    return _shape("qwen3.5-2b", "qwen35", vocab, metadata, _whole(vocab, width, tied=True), layer, num_layers)


def qwen3_30b_a3b(num_layers: int = 48) -> PublishedShape:
    width, heads, kv_heads, head_dim, experts, ffn, vocab = 2048, 32, 4, 128, 128, 768, 151936

    def layer(block: str) -> Iterator[TensorSpec]:
        yield from _matrices(block, "Q4_0", _attention(width, heads, kv_heads, head_dim))
        yield from _matrices(block, "Q4_0", {f"ffn_{part}_exps": (experts, ffn, width) for part in ("gate", "up")})
        yield from _matrices(block, "Q4_0", {"ffn_down_exps": (experts, width, ffn)})
        yield from _vectors(block, {"attn_norm.weight": width, "ffn_norm.weight": width})
        yield from _vectors(block, {"attn_q_norm.weight": head_dim, "attn_k_norm.weight": head_dim})
        yield from _vectors(block, {"ffn_gate_inp.weight": (experts, width)})

    metadata = _common(num_layers, width, 40960, 6144, heads, 1e-6, 1e6) | {
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim, "attention.value_length": head_dim,
        "expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": ffn,
    }  # fmt: skip
    return _shape("qwen3-30b-a3b", "qwen3moe", vocab, metadata, _whole(vocab, width, tied=False), layer, num_layers)


def gpt_oss_20b(num_layers: int = 24) -> PublishedShape:
    width, heads, kv_heads, head_dim, experts, ffn, vocab = 2880, 64, 8, 64, 32, 2880, 201088

    def layer(block: str) -> Iterator[TensorSpec]:
        attention = _attention(width, heads, kv_heads, head_dim)
        yield from _matrices(block, "Q8_0", attention)
        yield from _vectors(block, {f"{name}.bias": shape[0] for name, shape in attention.items()})
        for part, shape in (("gate", (ffn, width)), ("up", (ffn, width)), ("down", (width, ffn))):
            yield from _matrices(block, "MXFP4", {f"ffn_{part}_exps": (experts, *shape)})
            yield from _vectors(block, {f"ffn_{part}_exps.bias": (experts, shape[0])})
        yield from _vectors(block, {"attn_norm.weight": width, "post_attention_norm.weight": width})
        yield from _vectors(block, {"attn_sinks.weight": heads})
        yield from _vectors(block, {"ffn_gate_inp.weight": (experts, width), "ffn_gate_inp.bias": experts})

    metadata = _common(num_layers, width, 131072, ffn, heads, 1e-5, 150000.0) | {
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim, "attention.value_length": head_dim,
        "attention.sliding_window": 128, "expert_count": experts, "expert_used_count": 4,
        "expert_feed_forward_length": ffn, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }  # fmt: skip
    return _shape("gpt-oss-20b", "gpt-oss", vocab, metadata, _whole(vocab, width, tied=False), layer, num_layers)


def gemma4_26b_a4b(num_layers: int = 30) -> PublishedShape:
    """Every sixth layer is global: its heads are wider and fewer, and its keys are its values."""
    width, heads, experts, ffn, expert_ffn, vocab = 2816, 16, 128, 2112, 704, 262144
    slides = [(i + 1) % 6 != 0 for i in range(num_layers)]

    def layer(block: str) -> Iterator[TensorSpec]:
        local = slides[int(block.removeprefix("blk."))]
        kv_heads, head_dim = (8, 256) if local else (2, 512)
        yield from _matrices(block, "Q4_0", _attention(width, heads, kv_heads, head_dim, has_values=local))
        yield from _matrices(
            block, "Q4_0", {"ffn_gate": (ffn, width), "ffn_up": (ffn, width), "ffn_down": (width, ffn)}
        )
        yield from _matrices(block, "Q4_0", {"ffn_gate_up_exps": (experts, 2 * expert_ffn, width)})
        yield from _matrices(block, "Q4_0", {"ffn_down_exps": (experts, width, expert_ffn)})
        yield from _vectors(block, {f"{norm}.weight": width for norm in GEMMA4_NORMS})
        yield from _vectors(block, {"attn_q_norm.weight": head_dim, "attn_k_norm.weight": head_dim})
        yield from _vectors(block, {"ffn_gate_inp.weight": (experts, width), "ffn_gate_inp.scale": width})
        yield from _vectors(block, {"ffn_down_exps.scale": experts, "layer_output_scale.weight": 1})

    metadata = _common(num_layers, width, 262144, ffn, heads, 1e-6, 1e6) | {
        "attention.head_count_kv": [8 if local else 2 for local in slides], "attention.key_length": 512,
        "attention.value_length": 512, "attention.key_length_swa": 256, "attention.value_length_swa": 256,
        "rope.dimension_count": 512, "rope.dimension_count_swa": 256, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window": 1024, "attention.sliding_window_pattern": slides, "attention.shared_kv_layers": 0,
        "embedding_length_per_layer_input": 0, "final_logit_softcapping": 30.0, "expert_count": experts,
        "expert_used_count": 8, "expert_feed_forward_length": expert_ffn,
    }  # fmt: skip
    whole = [*_whole(vocab, width, tied=True), TensorSpec("rope_freqs.weight", (256,), FLOATS)]
    return _shape("gemma-4-26b-a4b", "gemma4", vocab, metadata, iter(whole), layer, num_layers)


def _common(
    num_layers: int, width: int, context: int, ffn: int, heads: int, epsilon: float, rope_base: float
) -> dict[str, Any]:
    return {
        "block_count": num_layers, "embedding_length": width, "context_length": context, "feed_forward_length": ffn,
        "attention.head_count": heads, "attention.layer_norm_rms_epsilon": epsilon, "rope.freq_base": rope_base,
    }  # fmt: skip


def _shape(
    name: str,
    architecture: str,
    vocab: int,
    metadata: Mapping[str, Any],
    whole: Iterator[TensorSpec],
    layer: Callable[[str], Iterator[TensorSpec]],
    num_layers: int,
) -> PublishedShape:
    tensors = [*whole, *(tensor for i in range(num_layers) for tensor in layer(f"blk.{i}"))]
    return PublishedShape(f"{name}-random-{num_layers}-layers", architecture, vocab, metadata, tuple(tensors))


PUBLISHED_SHAPES: dict[str, Callable[..., PublishedShape]] = {
    "lfm2-1.2b": lfm2_1_2b,
    "qwen3.5-2b": qwen3_5_2b,
    "qwen3-30b-a3b": qwen3_30b_a3b,
    "gpt-oss-20b": gpt_oss_20b,
    "gemma-4-26b-a4b": gemma4_26b_a4b,
}
