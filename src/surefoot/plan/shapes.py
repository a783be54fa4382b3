"""Models by name, without a file: published shapes (shapes.toml) in a format, as the header that a file would have."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from surefoot.formats import MODEL_FORMATS, ggml
from surefoot.weights.gguf_header import TensorInfo

Shape = tuple[int, ...]
FLOATS = "F32"  # type of vectors, and of routers
# Types of a file's matrices by the format's name: of most matrices, of those that keep more bits, and of the head.
MIXES = {
    "q4_k_m": ("Q4_K", "Q6_K", "Q6_K"),
    "q5_k_m": ("Q5_K", "Q6_K", "Q6_K"),
    "q6_k": ("Q6_K", "Q6_K", "Q6_K"),
    "q4_0": ("Q4_0", "Q4_0", "Q6_K"),
    "q4_1": ("Q4_1", "Q4_1", "Q8_0"),
    "q8_0": ("Q8_0", "Q8_0", "Q8_0"),
    "mxfp4": ("Q8_0", "Q8_0", "Q8_0"),  # and experts in MXFP4
}
# What llama.cpp writes instead where a row is no whole number of blocks.
FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


@dataclass(frozen=True)
class NamedShape:
    """A model of shapes.toml."""

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

    def metadata(self) -> dict[str, Any]:
        values = {
            "block_count": self.layers, "embedding_length": self.width, "context_length": self.context,
            "feed_forward_length": self.ffn, "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads, "attention.key_length": self.lanes,
            "attention.value_length": self.lanes, "attention.layer_norm_rms_epsilon": 1e-6,
        }  # fmt: skip
        if self.window:
            values["attention.sliding_window"] = self.window
        if self.experts:
            values |= {
                "expert_count": self.experts, "expert_used_count": self.used_experts,
                "expert_feed_forward_length": self.expert_ffn,
            }  # fmt: skip
        return {"general.architecture": self.family} | {f"{self.family}.{key}": value for key, value in values.items()}

    def matrices(self) -> dict[str, Shape]:
        """Of a layer."""
        width, queries, keys = self.width, self.heads * self.lanes, self.kv_heads * self.lanes
        sizes: dict[str, Shape] = {
            "attn_q": (queries, width), "attn_k": (keys, width), "attn_v": (keys, width),
            "attn_output": (width, queries),
        }  # fmt: skip
        inner, experts = (self.expert_ffn, (self.experts,)) if self.experts else (self.ffn, ())
        suffix = "_exps" if self.experts else ""
        for part, size in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
            sizes[f"ffn_{part}{suffix}"] = (*experts, *size)
        return sizes

    def vectors(self) -> Iterator[tuple[str, Shape]]:
        """Of a layer: what stays in float32."""
        norms = ["attn_norm", "ffn_norm"]
        if self.family == "gemma3":
            norms += ["post_attention_norm", "post_ffw_norm"]
        if self.family == "gpt-oss":
            norms = ["attn_norm", "post_attention_norm"]
            yield "attn_sinks.weight", (self.heads,)
            yield "ffn_gate_inp.bias", (self.experts,)
        yield from ((f"{norm}.weight", (self.width,)) for norm in norms)
        if self.query_norms:
            yield from ((f"attn_{part}_norm.weight", (self.lanes,)) for part in ("q", "k"))
        if self.experts:
            yield "ffn_gate_inp.weight", (self.experts, self.width)
        if self.biases:
            yield from ((f"{name}.bias", size[:-1]) for name, size in self.matrices().items() if self._is_biased(name))

    def _is_biased(self, name: str) -> bool:
        return self.family == "gpt-oss" or name in ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True)
class ShapeHeader:
    """The header of a file that does not exist."""

    name: str
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, TensorInfo] = field(repr=False)


@dataclass(frozen=True)
class NamedModel:
    """A shape in a format."""

    header: ShapeHeader
    float_format: str | None  # that weights are rounded to when they are loaded; None: they have a type of their own


def known_shapes() -> dict[str, NamedShape]:
    text = files("surefoot.plan").joinpath("shapes.toml").read_text()
    entries = [NamedShape(**entry) for entry in tomllib.loads(text)["shape"]]
    return {entry.name: entry for entry in entries}


def find_shape(name: str) -> NamedModel | None:
    """name: SHAPE or SHAPE:FORMAT; None if there is no such shape. Raises ValueError for an unknown format."""
    shape_name, _, format_name = name.lower().partition(":")
    shape = known_shapes().get(shape_name)
    if shape is None:
        return None
    fmt = format_name or shape.format
    if fmt not in MIXES and fmt not in MODEL_FORMATS:
        raise ValueError(
            f"{name}: there is no format {fmt!r}: take one of {', '.join(MIXES)} (types of a file), or of "
            f"{', '.join(MODEL_FORMATS)} (a folder of 16-bit weights, rounded when it is loaded)"
        )
    return NamedModel(make_header(shape, fmt), fmt if fmt in MODEL_FORMATS else None)


def make_header(shape: NamedShape, fmt: str) -> ShapeHeader:
    """fmt: of MIXES; any other: 16-bit floats."""
    types = _TensorTypes(shape.layers, fmt)
    tensors = {
        "token_embd.weight": types.of_embeddings((shape.vocab, shape.width), shape.tied),
        "output_norm.weight": _info("output_norm.weight", FLOATS, (shape.width,)),
    }
    if not shape.tied:
        tensors["output.weight"] = types.of_embeddings((shape.vocab, shape.width), is_head=True)
    for layer in range(shape.layers):
        named = {f"{name}.weight": types.of(name, layer, size) for name, size in shape.matrices().items()}
        named |= {name: _info(name, FLOATS, size) for name, size in shape.vectors()}
        tensors |= {f"blk.{layer}.{name}": info for name, info in named.items()}
    return ShapeHeader(f"{shape.name}:{fmt}", shape.metadata(), tensors)


@dataclass(frozen=True)
class _TensorTypes:
    """The types that llama.cpp's quantiser gives to a file's matrices."""

    num_layers: int
    fmt: str

    def of(self, name: str, layer: int, size: Shape) -> TensorInfo:
        if self.fmt not in MIXES:
            return _info(name, "BF16", size)
        usual, better, _ = MIXES[self.fmt]
        is_better = name.startswith(("attn_v", "ffn_down")) and self._keeps_more(layer)
        kind = "MXFP4" if self.fmt == "mxfp4" and name.endswith("_exps") else better if is_better else usual
        return _info(name, _fitting(kind, size), size)

    def of_embeddings(self, size: Shape, is_head: bool) -> TensorInfo:
        if self.fmt not in MIXES:
            return _info("token_embd", "BF16", size)
        usual, _, head = MIXES[self.fmt]
        return _info("token_embd", _fitting(head if is_head else usual, size), size)

    def _keeps_more(self, layer: int) -> bool:
        """The first and last eighth of the layers, and each third between them."""
        eighth = self.num_layers // 8
        return layer < eighth or layer >= 7 * self.num_layers // 8 or (layer - eighth) % 3 == 2


def _fitting(kind: str, size: Shape) -> str:
    return kind if size[-1] % ggml.NAMES[kind].block == 0 else FALLBACKS[kind]


def _info(name: str, kind: str, size: Shape) -> TensorInfo:
    block_type = ggml.NAMES[kind]
    nbytes = size[-1] // block_type.block * block_type.nbytes
    for count in size[:-1]:
        nbytes *= count
    return TensorInfo(name, block_type, size, 0, nbytes)
