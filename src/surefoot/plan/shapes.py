"""Models by name, without a file: published shapes (shapes.toml) in a format, as the header that a file would have."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from surefoot.formats import MODEL_FORMATS, ggml
from surefoot.models import read_config
from surefoot.models.outline import OutlineCheckpoint
from surefoot.plan.named_shape import NamedShape, Shape, known_tensors, shape_metadata, shape_tensors
from surefoot.weights.gguf_header import TensorInfo

# Types of a file's matrices by the format's name: of most matrices, of those that keep more bits, of the embeddings,
# and of the head, or of embeddings that are the head too.
MIXES = {
    "q4_k_m": ("Q4_K", "Q6_K", "Q4_K", "Q6_K"),
    "q5_k_m": ("Q5_K", "Q6_K", "Q5_K", "Q6_K"),
    "q6_k": ("Q6_K", "Q6_K", "Q6_K", "Q6_K"),
    "q4_0": ("Q4_0", "Q4_0", "Q4_0", "Q6_K"),
    "q4_0_l": ("Q4_0", "Q4_0", "Q8_0", "Q8_0"),
    "q4_1": ("Q4_1", "Q4_1", "Q4_1", "Q8_0"),
    "q8_0": ("Q8_0", "Q8_0", "Q8_0", "Q8_0"),
    "mxfp4": ("Q8_0", "Q8_0", "Q8_0", "Q8_0"),  # and experts in MXFP4
}
# What llama.cpp writes instead where a row is no whole number of blocks.
FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
# Matrices that stay in float32: routers and convolutions.
FLOATS = ("ffn_gate_inp.weight", "shortconv.conv.weight", "ssm_conv1d.weight")
SMALL = ("ssm_alpha.weight", "ssm_beta.weight")  # in 8 bits, whatever the others have


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


@cache
def known_shapes() -> Mapping[str, NamedShape]:
    entries = tomllib.loads(files("surefoot.plan").joinpath("shapes.toml").read_text())["shape"]
    return {entry["name"]: NamedShape(**entry) for entry in entries}


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
    values = shape_metadata(shape)
    values |= {key: np.array(value) for key, value in values.items() if isinstance(value, list)}
    metadata = {f"{shape.family}.{key}": value for key, value in values.items()}
    known = {name: _info(name, "F32", size) for name, size in known_tensors(shape).items()}
    header = ShapeHeader(f"{shape.name}:{fmt}", {"general.architecture": shape.family, **metadata}, known)
    sizes = shape_tensors(shape, read_config(OutlineCheckpoint(header)))
    types = _tensor_types(sizes, fmt)
    return replace(header, tensors={name: _info(name, types.get(name, "F32"), size) for name, size in sizes.items()})


def _tensor_types(sizes: Mapping[str, Shape], fmt: str) -> dict[str, str]:
    """The types that llama.cpp's quantiser gives to a file's matrices. What is not in it stays in float32."""
    matrices = [name for name, size in sizes.items() if len(size) > 1 and name.endswith(".weight")]
    matrices = [name for name in matrices if not name.endswith(FLOATS)]
    if fmt not in MIXES:
        return dict.fromkeys(matrices, "BF16")
    usual, better, embeddings, head = MIXES[fmt]
    types = dict.fromkeys(matrices, usual) | dict.fromkeys(_with_more_bits(matrices), better)
    types |= {name: "Q8_0" for name in matrices if name.endswith(SMALL)}
    if fmt == "mxfp4":
        types |= {name: "MXFP4" for name in matrices if "_exps." in name}
    is_tied = "output.weight" not in sizes
    types |= {"token_embd.weight": head} if is_tied else {"token_embd.weight": embeddings, "output.weight": head}
    return {name: _fitting(kind, sizes[name]) for name, kind in types.items()}


def _with_more_bits(matrices: Sequence[str]) -> list[str]:
    """llama.cpp counts matrices of values, but goes by the layer of those that end a feed-forward."""
    values = [name for name in matrices if name.endswith(("attn_v.weight", "attn_qkv.weight"))]
    downs = [name for name in matrices if ".ffn_down" in name]
    chosen = [name for place, name in enumerate(values) if _keeps_more(place, len(values))]
    return chosen + [name for name in downs if _keeps_more(int(name.split(".")[1]), len(downs))]


def _keeps_more(place: int, count: int) -> bool:
    """The first and last eighth, and each third between them."""
    return place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2


def _fitting(kind: str, size: Shape) -> str:
    return kind if size[-1] % ggml.NAMES[kind].block == 0 else FALLBACKS[kind]


def _info(name: str, kind: str, size: Shape) -> TensorInfo:
    block_type = ggml.NAMES[kind]
    return TensorInfo(name, block_type, size, 0, math.prod(size) // block_type.block * block_type.nbytes)
