"""The published shapes of models with experts, as metadata and tensors of a GGUF file.

Types are those of the files that people run, in 4 bits: experts in Q4_0 or MXFP4, embeddings and head in Q8_0.
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
class ExpertShape:
    """A model with experts, without weights."""

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


def _whole(vocab: int, width: int, *, tied: bool) -> Iterator[TensorSpec]:
    for name in ("token_embd",) if tied else ("token_embd", "output"):
        yield TensorSpec(f"{name}.weight", (vocab, width), "Q8_0")
    yield TensorSpec("output_norm.weight", (width,), FLOATS)


def _attention(width: int, heads: int, kv_heads: int, head_dim: int, *, has_values: bool = True) -> dict[str, Shape]:
    sizes = {"attn_q": (heads * head_dim, width), "attn_k": (kv_heads * head_dim, width)}
    sizes |= {"attn_v": (kv_heads * head_dim, width)} if has_values else {}
    return {**sizes, "attn_output": (width, heads * head_dim)}


def qwen3_30b_a3b(num_layers: int = 48) -> ExpertShape:
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


def gpt_oss_20b(num_layers: int = 24) -> ExpertShape:
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


def gemma4_26b_a4b(num_layers: int = 30) -> ExpertShape:
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
) -> ExpertShape:
    tensors = [*whole, *(tensor for i in range(num_layers) for tensor in layer(f"blk.{i}"))]
    return ExpertShape(f"{name}-random-{num_layers}-layers", architecture, vocab, metadata, tuple(tensors))


EXPERT_SHAPES: dict[str, Callable[..., ExpertShape]] = {
    "qwen3-30b-a3b": qwen3_30b_a3b,
    "gpt-oss-20b": gpt_oss_20b,
    "gemma-4-26b-a4b": gemma4_26b_a4b,
}
