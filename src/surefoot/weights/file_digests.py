"""A hash of what a model's files contain, remembered while the files stay as they are."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from surefoot.weights.packed_cache import model_files

CONFIGS = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")

Recall = Callable[[str], str | None]
Remember = Callable[[str, str], None]


def content_digest(model: Path, recall: Recall, remember: Remember) -> bytes:
    """Of the weights and of what says how to use them. Reads every byte of a file that is not remembered."""
    folder = [model / name for name in CONFIGS if (model / name).is_file()] if model.is_dir() else []
    digests = [_file_digest(file, recall, remember) for file in (*model_files(model), *folder)]
    return hashlib.blake2b("".join(digests).encode()).digest()


def _file_digest(file: Path, recall: Recall, remember: Remember) -> str:
    """Times of change are in the name under which it is remembered: nobody can set ctime."""
    facts = file.stat()
    name = f"file {file.resolve()} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino}"
    if (known := recall(name)) is not None:
        return known
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "blake2b").hexdigest()
    remember(name, digest)
    return digest
