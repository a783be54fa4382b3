"""Writes the compressed model as one of two kinds of file, and refuses beforehand what that kind cannot hold."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from surefoot.weights import Checkpoint, GgufFile
from surefoot_compress.arrays import check_output_path
from surefoot_compress.errors import CompressError
from surefoot_compress.format_names import parse_format
from surefoot_compress.ggml_grids import GgmlFormat
from surefoot_compress.grids import IntFormat
from surefoot_compress.layer import CompressedTensor
from surefoot_compress.make_hf_config import make_hf_config
from surefoot_compress.methods import METHODS, CompressOptions
from surefoot_compress.write_compressed_tensors import write_compressed_tensors
from surefoot_compress.write_gguf import write_gguf


def check_output(checkpoint: Checkpoint, source: Path, out: Path, options: CompressOptions) -> None:
    """Refuses an output that `write` could not write."""
    if out.resolve() == source.resolve():
        raise CompressError(f"{out} is the model itself, which is read while the output is written: name another file")
    if options.output == "gguf":
        _check_gguf(checkpoint, out, options)
    else:
        _check_compressed_tensors(checkpoint, out, options)


def _check_gguf(checkpoint: Checkpoint, out: Path, options: CompressOptions) -> None:
    if not isinstance(checkpoint, GgufFile):
        raise CompressError(
            "GGUF is written from GGUF files only, whose tokenizer it copies: choose --output compressed-tensors"
        )
    check_output_path(out)
    alternatives = "one of ggml's types, or --output compressed-tensors"
    _check_formats((options.format, options.embeddings, *options.candidates), GgmlFormat, "GGUF", alternatives)


def _check_compressed_tensors(checkpoint: Checkpoint, out: Path, options: CompressOptions) -> None:
    if isinstance(checkpoint, GgufFile):
        make_hf_config(checkpoint)  # refuses a model that config.json cannot describe
    if out.exists() and not out.is_dir():
        raise CompressError(f"{out} is a file: name a folder, which is created if it does not exist")
    if options.embeddings is not None:
        raise CompressError("compressed-tensors keeps embeddings and head in half precision: leave out --embeddings")
    _check_formats((options.format, *options.candidates), IntFormat, "compressed-tensors", "int4-g32 and the like")


def _check_formats(names: Iterable[str | None], supported: type, output: str, alternatives: str) -> None:
    for name in filter(None, names):
        if not isinstance(parse_format(name), supported):
            raise CompressError(f"{output} has no {name}: choose {alternatives}")


def write(
    checkpoint: Checkpoint,
    source: Path,
    out: Path,
    tensors: Iterator[tuple[str, CompressedTensor]],
    options: CompressOptions,
) -> None:
    """Writes an output that `check_output` has accepted."""
    if options.output == "compressed-tensors":
        write_compressed_tensors(checkpoint, source, tensors, out, METHODS[options.method].activations_int8)
    else:
        assert isinstance(checkpoint, GgufFile)
        write_gguf(checkpoint, tensors, out, {"surefoot_compress.method": options.method})
