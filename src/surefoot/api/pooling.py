"""What a model's files say about vectors: which hidden states make one, and whether it is a document's score.

GGUF files have a key for it. Hugging Face folders have the files of sentence-transformers: modules.json lists modules,
and the folder of the module Pooling says which states it takes.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.core import Pooling
from surefoot.core.model_files import MAX_CONFIG_BYTES, in_folder, read_json, read_json_objects
from surefoot.models import ENCODERS, family_of
from surefoot.models.load import BEFORE_CLASSIFIER, CLASSIFIER
from surefoot.weights import Checkpoint

RANK = "rank"
CHOICES = (*(pooling.value for pooling in Pooling), RANK)
GGUF_TYPES = {1: "mean", 2: "cls", 3: "last", 4: RANK}  # llama.cpp's numbers; 0: none
MODES = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}  # sentence-transformers' names, old form
NEW_MODES = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
# GGUF's names of families whose tokens see later ones.
SEE_AHEAD = ("bert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "modern-bert", "nomic-bert")
RERANKER_NAME = "qwen3-reranker"  # its folder has no file that says what it is


@dataclass(frozen=True)
class PoolingConfig:
    """How hidden states become a vector or a score."""

    pooling: Pooling
    ranks: bool = False  # the vector becomes a document's score for a query
    normalizes: bool = False  # the vector is scaled to length 1
    is_named: bool = True  # by the model's files; False: the caller asked for it, or a folder is called so
    answers: tuple[int, int] | None = None  # tokens for yes and no, where the files give them


def find_pooling(path: Path, checkpoint: Checkpoint, chosen: str | None = None) -> PoolingConfig | None:
    """The pooling that was chosen, else the files'. None: the model only generates. Raises ValueError if the files ask
    for what is not supported."""
    if chosen is not None and chosen not in CHOICES:
        raise ValueError(f"there is no pooling {chosen!r}: give one of {', '.join(CHOICES)}")
    _check_causal(checkpoint.metadata)
    scores = {f"{BEFORE_CLASSIFIER}.weight", f"{CLASSIFIER}.weight"}
    if chosen not in (None, RANK) and scores <= checkpoint.tensors.keys():
        raise ValueError("this model scores pairs of texts and makes no embeddings: leave the pooling out")
    if chosen is not None:
        return _config(chosen, checkpoint, is_named=False)
    return _from_folder(path, checkpoint) if path.is_dir() else _from_gguf(checkpoint)


def embedding_pooling(config: PoolingConfig | None) -> PoolingConfig:
    """The pooling of an embedding model. Raises ValueError for other models."""
    if config is None:
        raise ValueError(
            "this model's files name no pooling, so it was not trained for embeddings: take an embedding model, such "
            "as Qwen3-Embedding, or choose a pooling when the model is loaded (--pooling mean)"
        )
    if config.ranks:
        raise ValueError("this model ranks documents and makes no embeddings: use /v1/rerank, or an embedding model")
    return config


def _config(kind: str, checkpoint: Checkpoint, *, normalizes: bool = False, is_named: bool = True) -> PoolingConfig:
    if kind == RANK:
        return PoolingConfig(_scored(checkpoint.metadata), ranks=True, is_named=is_named)
    return PoolingConfig(Pooling(kind), normalizes=normalizes, is_named=is_named)


def _scored(metadata: Mapping[str, Any]) -> Pooling:
    """The state that a reranker's classifier reads: an encoder's first one, unless its files say the mean."""
    if family_of(metadata) not in ENCODERS:
        return Pooling.LAST
    return Pooling(metadata.get("classifier_pooling", "cls"))


def _check_causal(metadata: Mapping[str, Any]) -> None:
    """Raises ValueError for a model whose tokens see later ones, unless its family can run it."""
    architecture = metadata.get("general.architecture", "")
    if architecture in SEE_AHEAD:
        return
    if metadata.get(f"{architecture}.attention.causal", True) and metadata.get("is_causal") is not False:
        return
    raise ValueError(
        "this model's tokens see later tokens (bidirectional attention), which is not supported: take an embedding "
        "model with causal attention, such as Qwen3-Embedding"
    )


def _from_gguf(checkpoint: Checkpoint) -> PoolingConfig | None:
    """llama.cpp's number. What uses such files scales the vectors to length 1."""
    metadata = checkpoint.metadata
    number = metadata.get(f"{metadata.get('general.architecture', '')}.pooling_type", 0)
    if number and number not in GGUF_TYPES:
        raise ValueError(
            f"the file has pooling type {number}, which is not supported: choose one of {', '.join(CHOICES)}"
        )
    return _config(GGUF_TYPES[number], checkpoint, normalizes=True) if number else None


def _from_folder(folder: Path, checkpoint: Checkpoint) -> PoolingConfig | None:
    listed = in_folder(folder, "modules.json")
    modules = read_json_objects(listed, MAX_CONFIG_BYTES) if listed is not None else []
    kinds = {str(module.get("type", "")).rpartition(".")[2]: str(module.get("path", "")) for module in modules}
    if others := kinds.keys() - {"Transformer", "Pooling", "Dense", "Normalize", "LogitScore"}:
        raise ValueError(f"{listed} has the module {min(others)}, which is not supported: choose another model")
    for module in modules:
        if str(module.get("type", "")).endswith(".Dense"):
            _check_dense(_read(folder, str(module.get("path", ""))), folder)
    if "Pooling" in kinds:
        mode = _mode(_read(folder, kinds["Pooling"]), folder)
        return _config(mode, checkpoint, normalizes="Normalize" in kinds)
    if "LogitScore" in kinds:
        return _from_tokens(_read(folder, kinds["LogitScore"]), folder)
    if f"{CLASSIFIER}.weight" in checkpoint.tensors:
        return _config(RANK, checkpoint)
    return _config(RANK, checkpoint, is_named=False) if _is_called_reranker(folder, checkpoint) else None


def _read(folder: Path, module: str) -> dict[str, Any]:
    """The config of a module. Its path may not lead out of the folder."""
    file = in_folder(folder, f"{module}/config.json") if Path(module).name == module else None
    if file is None:
        raise ValueError(f"{folder} lacks {module}/config.json, which modules.json needs: fetch it")
    return read_json(file, MAX_CONFIG_BYTES)


def _check_dense(config: Mapping[str, Any], folder: Path) -> None:
    """Raises ValueError for a dense layer that is more than a matrix."""
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    if activation != "Identity" or config.get("bias"):
        raise ValueError(f"{folder} has a dense module with a bias or with {activation}, which is not supported")


def _mode(config: Mapping[str, Any], folder: Path) -> str:
    """The one mode that is on."""
    old = [
        key.removeprefix("pooling_mode_") for key, value in config.items() if key.startswith("pooling_mode_") and value
    ]
    new = config.get("pooling_mode")
    names = [MODES.get(mode) for mode in old] if new is None else [NEW_MODES.get(new) if isinstance(new, str) else None]
    if len(names) != 1 or names[0] is None:
        raise ValueError(f"{folder} pools by {', '.join(old) or new}: one of {', '.join(NEW_MODES)} is supported")
    return names[0]


def _from_tokens(config: Mapping[str, Any], folder: Path) -> PoolingConfig:
    """A reranker whose score is the odds of one token against another."""
    answers = (config.get("true_token_id"), config.get("false_token_id"))
    if not all(type(token) is int and token >= 0 for token in answers):
        raise ValueError(f"{folder} scores by one token alone, which is not supported: choose another reranker")
    return PoolingConfig(Pooling.LAST, ranks=True, answers=(int(answers[0] or 0), int(answers[1] or 0)))


def _is_called_reranker(folder: Path, checkpoint: Checkpoint) -> bool:
    """Whether the folder's name says so: the hub's cache has it two folders above."""
    names = " ".join(folder.absolute().parts[-3:]).lower()
    return checkpoint.metadata.get("model_type") == "qwen3" and RERANKER_NAME in names


def unit(vector: Sequence[float], dimensions: int | None = None) -> tuple[float, ...]:
    """The vector, or its first dimensions, scaled to length 1, in float32. The length is the root of an exactly rounded
    sum."""
    kept = vector[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in kept)) or 1.0
    return struct.unpack(f"<{len(kept)}f", struct.pack(f"<{len(kept)}f", *(value / length for value in kept)))
