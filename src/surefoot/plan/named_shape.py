"""A published model by its sizes, an entry of shapes.toml: the metadata and tensors that its GGUF file has.

The tensors are those that the family expects for the metadata (`models/shapes.py`). What it may do without, and where
it takes one of several, is said here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.models import ModelConfig
from surefoot.models.shapes import expected_tensors
from surefoot.weights.checkpoint import Tensor

Shape = tuple[int, ...]  # in numpy's order
LFM2_ATTENDING = (2, 5, 8, 10, 12, 14)
LFM2_TAPS = 3
QWEN35_INTERVAL, QWEN35_TAPS = 4, 4
GEMMA4_INTERVAL, GLOBAL_HEADS, GLOBAL_LANES = 6, 2, 512
HYBRIDS = ("lfm2", "qwen35")  # queries and keys of their attention are normed


@dataclass(frozen=True)
class NamedShape:
    """A model's sizes."""

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

    @property
    def is_dense(self) -> bool:
        """Whether all layers have attention, and a token goes through all weights."""
        return not self.experts and self.family not in HYBRIDS


# ---- metadata ----


def shape_metadata(shape: NamedShape) -> dict[str, Any]:
    """By keys without the family."""
    more = METADATA.get(shape.family)
    return _usual_metadata(shape) | (more(shape) if more is not None else {})


def _usual_metadata(shape: NamedShape) -> dict[str, Any]:
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


def _gpt_oss_metadata(shape: NamedShape) -> dict[str, Any]:
    return {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
    }  # fmt: skip


def _lfm2_metadata(shape: NamedShape) -> dict[str, Any]:
    heads = [shape.kv_heads if layer in LFM2_ATTENDING else 0 for layer in range(shape.layers)]
    return {"attention.head_count_kv": heads, "shortconv.l_cache": LFM2_TAPS}


def _qwen35_metadata(shape: NamedShape) -> dict[str, Any]:
    return {
        "rope.dimension_count": shape.lanes // 4, "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": QWEN35_INTERVAL, "ssm.conv_kernel": QWEN35_TAPS,
        "ssm.state_size": shape.delta_lanes, "ssm.group_count": shape.delta_heads,
        "ssm.time_step_rank": shape.delta_heads, "ssm.inner_size": shape.delta_values,
    }  # fmt: skip


def _gemma4_slides(layer: int) -> bool:
    return (layer + 1) % GEMMA4_INTERVAL != 0


def _gemma4_metadata(shape: NamedShape) -> dict[str, Any]:
    slides = [_gemma4_slides(layer) for layer in range(shape.layers)]
    heads = [shape.kv_heads if slid else GLOBAL_HEADS for slid in slides]
    return {
        "attention.head_count_kv": heads, "attention.key_length": GLOBAL_LANES,
        "attention.value_length": GLOBAL_LANES, "attention.key_length_swa": shape.lanes,
        "attention.value_length_swa": shape.lanes, "rope.dimension_count": GLOBAL_LANES,
        "rope.dimension_count_swa": shape.lanes, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": slides, "attention.shared_kv_layers": 0,
        "embedding_length_per_layer_input": 0, "final_logit_softcapping": 30.0,
    }  # fmt: skip


METADATA: dict[str, Callable[[NamedShape], dict[str, Any]]] = {  # what a family has besides, by GGUF's name of it
    "gpt-oss": _gpt_oss_metadata, "lfm2": _lfm2_metadata, "qwen35": _qwen35_metadata, "gemma4": _gemma4_metadata,
}  # fmt: skip


# ---- tensors ----


def known_tensors(shape: NamedShape) -> dict[str, Shape]:
    """Those that tell the config what the metadata do not."""
    factors = {"rope_freqs.weight": (GLOBAL_LANES // 2,)} if shape.family == "gemma4" else {}
    return {"token_embd.weight": (shape.vocab, shape.width), **factors}


def shape_tensors(shape: NamedShape, config: ModelConfig) -> dict[str, Shape]:
    sizes = {"experts": shape.experts, "inner": shape.expert_ffn, "both": 2 * shape.expert_ffn}
    tensors = known_tensors(shape)
    for tensor in expected_tensors(config, _Chosen(shape)):
        if not tensor.optional or _has(shape, tensor.name):
            tensors[tensor.name] = tuple(size if isinstance(size, int) else sizes[size] for size in tensor.shape)
    if shape.family == "gemma4":
        tensors |= {f"blk.{layer}.layer_output_scale.weight": (1,) for layer in range(shape.layers)}
    return tensors


def _has(shape: NamedShape, name: str) -> bool:
    """Whether its file has a tensor that the family may do without."""
    if name == "output.weight":
        return not shape.tied
    part, _, kind = name.removeprefix("blk.").partition(".")[2].rpartition(".")
    if kind == "bias":
        return part != "exp_probs_b" and bool(part) and (shape.family == "gpt-oss" or _is_biased(shape, part))
    if part in ("attn_q_norm", "attn_k_norm"):
        return shape.query_norms or shape.family in HYBRIDS
    return part == "attn_sinks" and shape.family == "gpt-oss"


def _is_biased(shape: NamedShape, part: str) -> bool:
    return shape.biases and part in ("attn_q", "attn_k", "attn_v")


class _Chosen(Mapping[str, Tensor]):
    """The names of tensors of which files have these or others."""

    def __init__(self, shape: NamedShape) -> None:
        self._shape = shape

    def __contains__(self, name: object) -> bool:
        part, is_gemma4 = str(name).removeprefix("blk."), self._shape.family == "gemma4"
        if part.endswith("attn_v.weight"):  # of Gemma 4's global layers, keys are values
            return not is_gemma4 or _gemma4_slides(int(part.partition(".")[0]))
        return part.endswith((".ffn_gate.weight", ".ssm_a")) or (is_gemma4 and part.endswith("ffn_gate_up_exps.weight"))

    def __getitem__(self, name: str) -> Tensor:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
