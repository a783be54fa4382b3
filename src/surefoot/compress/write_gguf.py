"""A GGUF file of replaced tensors: the source's metadata, ggml's blocks. The gguf package writes it."""

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.compress.ggml_grids import GgmlFormat
from surefoot.compress.later import CompressError
from surefoot.compress.layer import Made, Quantised
from surefoot.machine.atomic_write import written_whole
from surefoot.weights import GgufFile

SKIPPED = ("general.architecture", "general.file_type", "general.quantization_version", "split.")


def write_gguf(
    source: GgufFile,
    tensors: Iterable[tuple[str, Made]],
    out: Path,
    added: Mapping[str, str],
    changed: Mapping[str, int] | None = None,
) -> None:
    """`added`: keys of text that say how the file was made. `changed`: numbers that are not the source's."""
    with written_whole(out) as beside:
        _write(source, tensors, beside, added, changed or {})


def _write(
    source: GgufFile,
    tensors: Iterable[tuple[str, Made]],
    out: Path,
    added: Mapping[str, str],
    changed: Mapping[str, int],
) -> None:
    gguf = _package()
    writer = gguf.GGUFWriter(out, source.metadata["general.architecture"], use_temp_file=True)
    _copy_metadata(gguf, source.path, writer, changed)
    for key, text in added.items():
        writer.add_string(key, text)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, made in tensors:
        kind, data = _encoded(name, made)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError:
        raise CompressError("gguf is not installed: pip install 'surefoot[compress]'") from None


def _encoded(name: str, made: Made) -> tuple[str, Any]:
    if not isinstance(made, Quantised):
        return ("F32", made) if made.ndim == 1 else ("F16", made.astype(np.float16))
    if not isinstance(made.format, GgmlFormat):
        raise CompressError(f"{name}: GGUF has no {made.format.name}")
    return made.format.name, made.format.encode(made.grid, made.codes)


def _copy_metadata(gguf: Any, source: Path, writer: Any, changed: Mapping[str, int]) -> None:
    for name, field in gguf.GGUFReader(source).fields.items():
        if name.startswith(("GGUF.", *SKIPPED)):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, field.contents()), field.types[0], inner)


def overhead_bytes(source: GgufFile) -> int:
    """What a file holds beside its matrices: metadata, vectors, padding."""
    start = min(info.offset for info in source.tensors.values())
    vectors = sum(4 * info.shape[0] for info in source.tensors.values() if len(info.shape) == 1)
    return start + vectors + 32 * len(source.tensors) + 1024
