"""A published model by its sizes, an entry of shapes.toml: the metadata and tensors that its GGUF file has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]  # in numpy's order
Sizes = dict[str, Shape]  # by tensor
USUAL_NORMS = ("attn_norm", "ffn_norm")
NORMS = {
    "gemma3": ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
    "gemma4": (
        "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2",
        "pre_ffw_norm_2",
    ),
    "gpt-oss": ("attn_norm", "post_attention_norm"),
    "qwen35": ("attn_norm", "post_attention_norm"),
}  # fmt: skip


@dataclass(frozen=True)
class NamedShape:
    """A model's sizes. Functions make metadata and tensors of them: those below, or the family's (family_shapes.py)."""

    name: str
    family: str  # GGUF's name of the architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    source: str  # of the figures: the repository whose config.json has them
    head_dim: int = 0  # 0: width / heads
    epsilon: float = 1e-6  # of norms
    rope_base: float = 1e6
    tied: bool = False  # the head is the embeddings' matrix
    biases: bool = False  # of queries, keys and values
    query_norms: bool = False  # queries and keys are normed for each head
    window: int = 0  # tokens that window layers see; 0: no layer has a window
    experts: int = 0
    used_experts: int = 0
    expert_ffn: int = 0
    delta_heads: int = 16  # of the delta rule, which only qwen35 has
    delta_lanes: int = 128
    format: str = "q4_k_m"  # if none is named

    @property
    def lanes(self) -> int:
        """Of a head."""
        return self.head_dim or self.width // self.heads

    @property
    def delta_values(self) -> int:
        """Of a token."""
        return self.delta_heads * self.delta_lanes


def usual_metadata(shape: NamedShape) -> dict[str, Any]:
    """By keys without the family."""
    values: dict[str, Any] = {
        "block_count": shape.layers, "embedding_length": shape.width, "context_length": shape.context,
        "feed_forward_length": shape.ffn, "attention.head_count": shape.heads,
        "attention.layer_norm_rms_epsilon": shape.epsilon, "rope.freq_base": shape.rope_base,
        "attention.head_count_kv": shape.kv_heads,
    }  # fmt: skip
    if shape.head_dim:
        values |= {"attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim}
    if shape.window:
        values["attention.sliding_window"] = shape.window
    if shape.experts:
        values |= {
            "expert_count": shape.experts, "expert_used_count": shape.used_experts,
            "expert_feed_forward_length": shape.expert_ffn,
        }  # fmt: skip
    return values


def usual_outside_layers(shape: NamedShape) -> Sizes:
    embeddings = (shape.vocab, shape.width)
    head = {} if shape.tied else {"output": embeddings}
    return weights({"token_embd": embeddings, **head, "output_norm": (shape.width,)})


def usual_layer(shape: NamedShape, layer: int) -> Sizes:
    """Attention, and a gated feed-forward or experts: the same in all layers."""
    matrices = attention_sizes(shape) | feed_forward_sizes(shape)
    biases = {f"{name}.bias": matrices[name][:-1] for name in ("attn_q", "attn_k", "attn_v") if shape.biases}
    return weights(matrices | norm_sizes(shape) | router_sizes(shape)) | biases


def attention_sizes(shape: NamedShape) -> Sizes:
    queries, keys = (shape.heads * shape.lanes, shape.width), (shape.kv_heads * shape.lanes, shape.width)
    return {"attn_q": queries, "attn_k": keys, "attn_v": keys, "attn_output": queries[::-1]}


def feed_forward_sizes(shape: NamedShape) -> Sizes:
    if not shape.experts:
        return gated_sizes(shape.ffn, shape.width)
    expert = gated_sizes(shape.expert_ffn, shape.width)
    return {f"{name}_exps": (shape.experts, *size) for name, size in expert.items()}


def gated_sizes(inner: int, width: int) -> Sizes:
    return {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}


def norm_sizes(shape: NamedShape) -> Sizes:
    sizes: Sizes = dict.fromkeys(NORMS.get(shape.family, USUAL_NORMS), (shape.width,))
    return sizes | (head_norm_sizes(shape) if shape.query_norms else {})


def head_norm_sizes(shape: NamedShape) -> Sizes:
    return {"attn_q_norm": (shape.lanes,), "attn_k_norm": (shape.lanes,)}


def router_sizes(shape: NamedShape) -> Sizes:
    return {"ffn_gate_inp": (shape.experts, shape.width)} if shape.experts else {}


def weights(sizes: Mapping[str, Shape]) -> Sizes:
    return {f"{name}.weight": size for name, size in sizes.items()}
