"""Hashes of what a model's files contain, remembered while the files stay as they are."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.atomic_write import atomic_write
from surefoot.machine.own_folder import check_owner, own_folder
from surefoot.weights.packed_cache import PackedCache, model_files

CONFIGS = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")
# The ends of the names of all files that loading a folder may read.
READ_FROM_FOLDERS = (".safetensors", ".json", ".jinja", "tiktoken.model")

Recall = Callable[[str], str | None]
Remember = Callable[[str, str], None]


@dataclass(frozen=True)
class ModelDigests:
    """Hashes of a model's files. Where the files are, and what a GGUF file is called, does not show."""

    weights: bytes  # of the weights and of what says how to use them: all that keys and values depend on
    content: bytes  # of every file that an answer may depend on: tokenizer and templates too


def hash_model(model: Path, recall: Recall, remember: Remember) -> ModelDigests:
    """Reads every byte of a file whose hash is not remembered."""
    digests = {file: _file_digest(file, recall, remember) for file in _all_files(model)}
    configs = [model / name for name in CONFIGS if (model / name) in digests]
    weights = "".join(digests[file] for file in (*model_files(model), *configs))
    names = [str(file.relative_to(model)) if model.is_dir() else "" for file in digests]
    content = json.dumps([*zip(names, digests.values(), strict=True)])
    return ModelDigests(hashlib.blake2b(weights.encode()).digest(), hashlib.blake2b(content.encode()).digest())


class BackgroundHash:
    """Hashes that a thread makes, which does not keep the process alive."""

    def __init__(self, model: Path, notes: "DigestNotes") -> None:
        self._notes = notes
        self._hashed: Future[ModelDigests] = Future()
        threading.Thread(target=self._run, args=(model,), name="surefoot-model-hash", daemon=True).start()

    def _run(self, model: Path) -> None:
        try:
            self._hashed.set_result(hash_model(model, self._notes.recall, self._notes.remember))
        except BaseException as error:
            self._hashed.set_exception(error)

    def result(self) -> ModelDigests:
        """Waits for them. They are remembered only now: a start that fails leaves no file behind."""
        digests = self._hashed.result()
        self._notes.save()
        return digests


def hash_in_background(model: Path, cache: PackedCache | None) -> BackgroundHash:
    """cache: the hashes are remembered in its folder."""
    return BackgroundHash(model, DigestNotes(cache.folder if cache is not None else Path(os.devnull), model))


class DigestNotes:
    """Remembers the hashes of one model's files in a small file. A folder that cannot be used only costs time."""

    def __init__(self, folder: Path, model: Path) -> None:
        place = hashlib.sha256(str(model.resolve()).encode(errors="surrogatepass")).hexdigest()[:16]
        self._path = folder.expanduser() / f"{place}.digests"
        self._known: dict[str, str] = {}
        with suppress(OSError, ValueError):
            check_owner(self._path.stat(), self._path)
            self._known = dict(json.loads(self._path.read_text()))
        self._current: dict[str, str] = {}  # without files that have changed since
        self._is_new = False  # something is to be saved

    def recall(self, name: str) -> str | None:
        if (digest := self._known.get(name)) is not None:
            self._current[name] = digest
        return digest

    def remember(self, name: str, digest: str) -> None:
        self._current[name] = digest
        self._is_new = True

    def save(self) -> None:
        if not self._is_new:
            return
        self._is_new = False
        with suppress(OSError):
            own_folder(self._path.parent)
            with atomic_write(self._path) as temporary:
                temporary.touch(0o600)  # a file that a group may write to would not be trusted
                temporary.write_text(json.dumps(self._current))


def _all_files(model: Path) -> list[Path]:
    if not model.is_dir():
        return model_files(model)
    inside = (*model.glob("*"), *model.glob("*/*"))
    return sorted(file for file in inside if file.name.endswith(READ_FROM_FOLDERS) and file.is_file())


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
