"""Writes a GGUF file: the source's metadata, other tensors. The gguf package does the writing."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from surefoot.machine.atomic_write import atomic_write
from surefoot.weights import GgufFile
from surefoot_compress.errors import CompressError
from surefoot_compress.ggml_grids import GgmlFormat
from surefoot_compress.layer import CompressedTensor, Quantised

# Keys of the source that are not copied.
SKIPPED = ("general.architecture", "general.file_type", "general.quantization_version", "split.")


def write_gguf(
    source: GgufFile,
    tensors: Iterable[tuple[str, CompressedTensor]],
    out: Path,
    added: Mapping[str, str],
    changed: Mapping[str, int] | None = None,
) -> None:
    """Writes `tensors` with the source's metadata. `added` are text keys that say how the file was made; `changed` are
    numbers that replace the source's."""
    with atomic_write(out) as beside:
        _write(source, tensors, beside, added, changed or {})


def _write(
    source: GgufFile,
    tensors: Iterable[tuple[str, CompressedTensor]],
    out: Path,
    added: Mapping[str, str],
    changed: Mapping[str, int],
) -> None:
    writer = gguf.GGUFWriter(out, source.metadata["general.architecture"], use_temp_file=True)
    _copy_metadata(source.path, writer, changed)
    for key, text in added.items():
        writer.add_string(key, text)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, tensor in tensors:
        kind, data = _encoded(name, tensor)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _encoded(name: str, tensor: CompressedTensor) -> tuple[str, Any]:
    """The name of its ggml type, and its data."""
    if not isinstance(tensor, Quantised):
        return ("F32", tensor) if tensor.ndim == 1 else ("F16", tensor.astype(np.float16))
    if not isinstance(tensor.format, GgmlFormat):
        raise CompressError(f"{name}: GGUF has no format {tensor.format.name}")
    return tensor.format.name, tensor.format.encode(tensor.grid, tensor.codes)


def _copy_metadata(source: Path, writer: Any, changed: Mapping[str, int]) -> None:
    for name, field in gguf.GGUFReader(source).fields.items():
        if name.startswith(("GGUF.", *SKIPPED)):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, field.contents()), field.types[0], inner)


def overhead_bytes(source: GgufFile) -> int:
    """Bytes of a file beside its matrices: metadata, vectors, padding."""
    start = min(info.offset for info in source.tensors.values())
    vectors = sum(4 * info.shape[0] for info in source.tensors.values() if len(info.shape) == 1)
    return start + vectors + 32 * len(source.tensors) + 1024
