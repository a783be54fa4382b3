"""Checks that a model fits into memory, from its file's header, before any weight is read.

Under a limit on addresses (`ulimit -v`) the check is needed: libraries in Rust abort the process when an allocation
fails, so their memory must be known to be free before they are called.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from surefoot import machine
from surefoot.formats import ModelFormat, ggml, to_format
from surefoot.ops.weights import Packing
from surefoot.weights.checkpoint import Checkpoint, Tensor
from surefoot.weights.coded import Coded
from surefoot.weights.gguf import GgufFile, packed_forms
from surefoot.weights.gguf_header import TensorInfo

FLOAT_BITS = 32
CODED_BITS = 4  # lower bound for a quantised weight
# Address space, most of which is never used: a thread's stack and glibc arena; the last chunk of an arena.
THREAD_BYTES, CHUNK_BYTES = 72 << 20, 64 << 20
HELPER_THREADS = 2  # for reading the tokenizer and for readahead
TOKEN_BYTES = 1 << 10  # per token of the vocabulary, in `tokenizers` and here: 500 measured (Gemma 3)
TEXT_FACTOR = 8  # memory for parsing tokenizer.json, by its length
Q4_K_M_BITS = 4.85  # of a weight
NARROW = "w4"  # the format that makes the least of float weights


def weight_bytes(checkpoint: Checkpoint, fmt: ModelFormat) -> int:
    """Lower bound on the memory of the packed weights. What GGUF's block types take is known."""
    if isinstance(checkpoint, GgufFile):
        return sum(sizes.memory_bytes for sizes in sizes_by_type(checkpoint, fmt))
    float_bits = _float_bits(fmt)
    tensors: Mapping[str, object] = checkpoint.tensors
    return sum(
        math.prod(tensor.shape) * (CODED_BITS if isinstance(tensors[name], Coded) else float_bits) // 8
        for name, tensor in checkpoint.tensors.items()
    )


@dataclass(frozen=True)
class TypeSizes:
    """The tensors of one ggml type."""

    type: str
    num_tensors: int
    num_weights: int
    file_bytes: int
    memory_bytes: int  # of float types at least


def sizes_by_type(file: GgufFile, fmt: ModelFormat) -> list[TypeSizes]:
    """The type with most bytes first."""
    by_type, packing = dict[ggml.BlockType, list[TensorInfo]](), file.packing()
    for info in file.tensors.values():
        by_type.setdefault(info.type, []).append(info)
    sizes = [
        TypeSizes(
            kind.name, len(infos), sum(math.prod(info.shape) for info in infos), sum(info.nbytes for info in infos),
            sum(_memory_bytes(info, fmt, packing) for info in infos),
        )
        for kind, infos in by_type.items()
    ]  # fmt: skip
    return sorted(sizes, key=lambda sizes: -sizes.file_bytes)


def bytes_of_a_token(tensors: Mapping[str, Tensor], num_experts: int) -> int | None:
    """The bytes of a GGUF file with these tensors that decoding one token needs: all matrices, `num_experts` of the
    experts, and no table of embeddings (but a row) unless that is the output head too. None: they are of another file,
    or weights are floats, which are rounded."""
    infos = [tensor for tensor in tensors.values() if isinstance(tensor, TensorInfo)]
    if not infos or any(info.name == "token_embd.weight" and info.type.is_float for info in infos):
        return None
    has_head = "output.weight" in tensors
    tables = {"per_layer_token_embd.weight", *(["token_embd.weight"] if has_head else [])}
    return sum(
        info.nbytes * num_experts // info.shape[0] if len(info.shape) > 2 else info.nbytes
        for info in infos
        if info.name not in tables
    )


def _memory_bytes(info: TensorInfo, fmt: ModelFormat, packing: Packing) -> int:
    """Of a vector, of a matrix, or of all experts' matrices."""
    if len(info.shape) < 2:
        return math.prod(info.shape) * FLOAT_BITS // 8
    if info.type.is_float:
        return math.prod(info.shape) * _float_bits(fmt) // 8
    (form,) = packed_forms([info], packing)
    return form.outline().data.nbytes * math.prod(info.shape[:-2])


def _float_bits(fmt: ModelFormat) -> int:
    return FLOAT_BITS if fmt.weights is None else fmt.weights.bits


def check_memory(path: Path, checkpoint: Checkpoint, fmt: ModelFormat, num_threads: int) -> None:
    """Raises MemoryError if the weights cannot fit, whatever the context length."""
    weights = weight_bytes(checkpoint, fmt)
    available = machine.memory().limit_bytes - machine.used_bytes()
    if weights > available:
        raise MemoryError(
            f"{path} needs at least {weights >> 20} MiB for its weights, and this machine (or its cgroup) has "
            f"{available >> 20} MiB: {_smaller(checkpoint, weights, available)}"
        )
    addresses, needed = machine.free_addresses(), weights + _other_addresses(path, checkpoint, num_threads)
    if addresses is not None and needed > addresses:
        smaller = _smaller(checkpoint, weights, addresses - (needed - weights))
        raise MemoryError(
            f"{path} needs about {needed >> 20} MiB of addresses, and the limit on them (ulimit -v) leaves "
            f"{addresses >> 20} MiB: raise the limit; or {smaller}"
        )


def _smaller(checkpoint: Checkpoint, weights: int, available: int) -> str:
    """What of the model would fit."""
    narrow = weight_bytes(checkpoint, to_format(NARROW))
    if narrow < weights and narrow <= available:
        return f"--format {NARROW} needs at least {narrow >> 20} MiB"
    quantised = int(Q4_K_M_BITS / 8 * sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values()))
    if quantised < 0.9 * weights and quantised <= available:
        return f"a Q4_K_M file of the model needs about {quantised >> 20} MiB"
    return "take a model with fewer weights"


def _other_addresses(path: Path, checkpoint: Checkpoint, num_threads: int) -> int:
    """Address space in bytes for threads and the tokenizer."""
    embeddings = checkpoint.tensors.get("token_embd.weight")
    vocabulary = TOKEN_BYTES * embeddings.shape[0] if embeddings is not None else 0
    text = path / "tokenizer.json"
    if path.is_dir() and text.is_file():
        vocabulary += TEXT_FACTOR * text.stat().st_size
    return CHUNK_BYTES + (num_threads + HELPER_THREADS) * THREAD_BYTES + vocabulary
