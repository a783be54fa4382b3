"""The kinds of file that compressing ends in. What one cannot hold is said before anything is measured."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from surefoot.compress.ggml_grids import GgmlFormat
from surefoot.compress.grids import IntFormat
from surefoot.compress.hf_config import make_config
from surefoot.compress.later import CompressError
from surefoot.compress.layer import METHODS, Made
from surefoot.compress.names import parse_format
from surefoot.compress.order import Order
from surefoot.compress.whole import check_place
from surefoot.compress.write_compressed_tensors import write_compressed_tensors
from surefoot.compress.write_gguf import write_gguf
from surefoot.weights import Checkpoint, GgufFile


def check_output(checkpoint: Checkpoint, source: Path, out: Path, order: Order) -> None:
    if out.resolve() == source.resolve():
        raise CompressError(f"{out} is the model itself, which is read to the end: write to another place")
    if order.output == "gguf":
        _check_gguf(checkpoint, out, order)
    else:
        _check_compressed_tensors(checkpoint, out, order)


def _check_gguf(checkpoint: Checkpoint, out: Path, order: Order) -> None:
    if not isinstance(checkpoint, GgufFile):
        raise CompressError(
            "GGUF is written from GGUF files only, whose tokenizer it copies: choose --output compressed-tensors"
        )
    check_place(out)
    instead = "one of ggml's types, or --output compressed-tensors"
    _check_formats((order.format, order.embeddings, *order.offered), GgmlFormat, "GGUF", instead)


def _check_compressed_tensors(checkpoint: Checkpoint, out: Path, order: Order) -> None:
    if isinstance(checkpoint, GgufFile):
        make_config(checkpoint)  # says what has no words in config.json
    if out.exists() and not out.is_dir():
        raise CompressError(f"{out} is a file: name a folder, which is made if it is not there")
    if order.embeddings is not None:
        raise CompressError("compressed-tensors keeps embeddings and head in half precision: leave out --embeddings")
    _check_formats((order.format, *order.offered), IntFormat, "compressed-tensors", "int4-g32 and the like")


def _check_formats(names: Iterable[str | None], held: type, output: str, instead: str) -> None:
    for name in filter(None, names):
        if not isinstance(parse_format(name), held):
            raise CompressError(f"{output} has no {name}: choose {instead}")


def write(checkpoint: Checkpoint, source: Path, out: Path, tensors: Iterator[tuple[str, Made]], order: Order) -> None:
    """As `check_output` has found that it can be."""
    if order.output == "compressed-tensors":
        write_compressed_tensors(checkpoint, source, tensors, out, METHODS[order.method].activations_int8)
    else:
        assert isinstance(checkpoint, GgufFile)
        write_gguf(checkpoint, tensors, out, {"surefoot.compress.method": order.method})
