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
    """A model whose layers are alike: attention, and a gated feed-forward or experts. Other families override parts."""

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
    format: str = "q4_k_m"  # if none is named

    @property
    def lanes(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def is_dense(self) -> bool:
        """Whether all layers have attention, and a token goes through all weights."""
        return not self.experts and all(map(self.attends, range(self.layers)))

    def attends(self, layer: int) -> bool:
        return True

    def metadata(self) -> dict[str, Any]:
        """By keys without the family."""
        values: dict[str, Any] = {
            "block_count": self.layers, "embedding_length": self.width, "context_length": self.context,
            "feed_forward_length": self.ffn, "attention.head_count": self.heads,
            "attention.layer_norm_rms_epsilon": self.epsilon, "rope.freq_base": self.rope_base,
            "attention.head_count_kv": self.kv_heads,
        }  # fmt: skip
        if self.head_dim:
            values |= {"attention.key_length": self.head_dim, "attention.value_length": self.head_dim}
        if self.window:
            values["attention.sliding_window"] = self.window
        if self.experts:
            values |= {
                "expert_count": self.experts, "expert_used_count": self.used_experts,
                "expert_feed_forward_length": self.expert_ffn,
            }  # fmt: skip
        return values

    def outside_layers(self) -> Sizes:
        embeddings = (self.vocab, self.width)
        head = {} if self.tied else {"output": embeddings}
        return weights({"token_embd": embeddings, **head, "output_norm": (self.width,)})

    def layer(self, layer: int) -> Sizes:
        matrices = self.attention() | self.feed_forward()
        biases = {f"{name}.bias": matrices[name][:-1] for name in ("attn_q", "attn_k", "attn_v") if self.biases}
        return weights(matrices | self.norms() | self.router()) | biases

    def attention(self) -> Sizes:
        queries, keys = (self.heads * self.lanes, self.width), (self.kv_heads * self.lanes, self.width)
        return {"attn_q": queries, "attn_k": keys, "attn_v": keys, "attn_output": queries[::-1]}

    def feed_forward(self) -> Sizes:
        if not self.experts:
            return gated(self.ffn, self.width)
        return {f"{name}_exps": (self.experts, *size) for name, size in gated(self.expert_ffn, self.width).items()}

    def norms(self) -> Sizes:
        sizes: Sizes = dict.fromkeys(NORMS.get(self.family, USUAL_NORMS), (self.width,))
        return sizes | (self.head_norms() if self.query_norms else {})

    def head_norms(self) -> Sizes:
        return {"attn_q_norm": (self.lanes,), "attn_k_norm": (self.lanes,)}

    def router(self) -> Sizes:
        return {"ffn_gate_inp": (self.experts, self.width)} if self.experts else {}


def weights(sizes: Mapping[str, Shape]) -> Sizes:
    return {f"{name}.weight": size for name, size in sizes.items()}


def gated(inner: int, width: int) -> Sizes:
    return {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
