"""Small safetensors files for tests, with types that numpy lacks written as bytes."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from surefoot.ops.arrays import Array

NAMES = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8"}


def write(path: Path, tensors: Mapping[str, Array], fp8: frozenset[str] = frozenset()) -> Path:
    """Writes the tensors. fp8: names of uint8 arrays that are e4m3."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        dtype = "F8_E4M3" if name in fp8 else NAMES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path
