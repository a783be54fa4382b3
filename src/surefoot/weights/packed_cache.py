"""A disk cache of packed weights: a model's second load only reads the file.

There is one file per checkpoint and form of its weights (packed_file.py). Its name has a hash of the checkpoint's files
(path, length, times of change), the form, the layout and surefoot's version: any difference gives another file name.
The file is written atomically, and ignored if its bytes have changed since.
"""

import glob
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from surefoot import __version__
from surefoot.formats import W8_GROUPED
from surefoot.machine.own_folder import own_folder
from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, Packing, WeightFormat
from surefoot.weights.background_writes import BackgroundWrites
from surefoot.weights.cache_folder import SUFFIX, note_use, remove_unfinished
from surefoot.weights.checkpoint import Checkpoint, Report, ReportingCheckpoint
from surefoot.weights.gguf import GgufFile
from surefoot.weights.packed_file import LAYOUT, Runs, read_packed, write_packed

PACKED_BY = ("formats/*.py", "weights/*.py", "ops/*.py", "ops/_lib/*", "models/load.py")
PAYS_S = 0.5  # seconds; a shorter load is not worth caching


@dataclass(frozen=True)
class PackedCache:
    """Where and when to cache packed weights."""

    folder: Path  # of the files
    least_s: float = 0.0  # cache only after a load of at least this many seconds
    background: BackgroundWrites | None = field(default=None, compare=False)
    """Writes the file while the model is in use. None: write it during the load."""


@contextmanager
def writing_beside(cache: PackedCache | None) -> Iterator[Callable[[], None]]:
    """A function that starts the background writes of the cache. They stop at the end of the block, and incomplete
    files are removed."""
    writes = cache.background if cache is not None else None
    if writes is None:
        yield lambda: None
        return
    try:
        yield writes.begin
    finally:
        writes.stop()


def default_cache() -> PackedCache:
    """The cache in the user's cache folder, for loads of at least PAYS_S seconds."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return PackedCache(base / "surefoot" / "packed", PAYS_S, BackgroundWrites())


class CachedCheckpoint:
    """A checkpoint whose packed matrices come from `cached`. Missing matrices are packed, and added to `packed`."""

    def __init__(self, checkpoint: Checkpoint, cached: Mapping[str, Runs]) -> None:
        self._checkpoint = checkpoint
        self._cached = cached
        self.metadata, self.tensors = checkpoint.metadata, checkpoint.tensors
        self.packed: dict[str, Runs] = {}

    def floats(self, name: str) -> F32:
        return self._checkpoint.floats(name)

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        return self._checkpoint.integers(name, float_format)

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        key = f"fused {' '.join(names)}"
        if key not in self._cached and key not in self.packed:
            self.packed[key] = [self._checkpoint.fused(backend, names, float_format)]
        return (self._cached.get(key) or self.packed[key])[0]

    def fused_experts(self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED) -> Runs:
        key = f"experts {' '.join(names)}"
        if key not in self._cached and key not in self.packed:
            self.packed[key] = self._checkpoint.fused_experts(backend, names, float_format)
        return self._cached.get(key) or self.packed[key]


@contextmanager
def packed_cache(
    cache: PackedCache,
    model: Path,
    checkpoint: Checkpoint,
    form: str,
    report: Report = lambda done, total: None,
    backend: Backend | None = None,
) -> Iterator[CachedCheckpoint]:
    """The checkpoint with packed matrices from the cache. On exit the missing matrices are added to the cache, or
    queued to be written in the background. form: what makes other weights of the same files: the format of floats, an
    adapter. backend: which multiplies them; None: this machine's.

    An unusable cache (full or read-only disk, another user's folder) never fails the load.
    """
    path: Path | None = None
    cached: dict[str, Runs] = {}
    with suppress(OSError, RuntimeError):
        folder = cache.folder.expanduser()
        if folder.exists():
            remove_unfinished(own_folder(folder))
        packing = Packing.WIDE
        if isinstance(checkpoint, GgufFile):
            packing = checkpoint.packing(backend.variant if backend is not None else None)
        path = folder / f"{cache_key(model, form, packing)}{SUFFIX}"
        cached = _read(path, report, backend)
    with_cache = CachedCheckpoint(checkpoint if cached else ReportingCheckpoint(checkpoint, report), cached)
    began = time.monotonic()
    yield with_cache
    if path is not None and with_cache.packed and time.monotonic() - began >= cache.least_s:
        _write(path, {**cached, **with_cache.packed}, cache.background)


def _read(path: Path, report: Report, backend: Backend | None) -> dict[str, Runs]:
    """The cached matrices; none if the file is absent or cannot be used."""
    try:
        cached = read_packed(path, report, backend)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    note_use(path)
    return cached


def _write(path: Path, runs: Mapping[str, Runs], background: BackgroundWrites | None) -> None:
    if background is not None:
        background.add(lambda pace: write_packed(path, runs, pace))
        return
    with suppress(OSError):
        write_packed(path, runs)


def cache_key(model: Path, form: str, packing: Packing = Packing.WIDE) -> str:
    """The cache file's name. It hashes ctime as well as mtime: copies may keep mtime, but nobody can set ctime."""
    facts = [(str(file.resolve()), *_state(file.stat())) for file in (*model_files(model), *_code())]
    text = json.dumps([LAYOUT, __version__, form, packing.value, facts])
    # Not `stem`, which would cut the folder Qwen2.5-Coder-1.5B at its last dot.
    return f"{model.name.removesuffix('.gguf')}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _code() -> list[Path]:
    """The source files that pack weights: during development they change, but the version does not."""
    package = Path(__file__).parents[1]
    return sorted(file for part in PACKED_BY for file in package.glob(part))


def _state(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def fingerprint(model: Path, *made_by: object) -> str:
    """A hash of the model's files as they are now, and of `made_by`: whatever else a derived file depends on."""
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in model_files(model)]
    return hashlib.sha256(json.dumps([*made_by, facts]).encode()).hexdigest()


def model_files(model: Path) -> list[Path]:
    """The files with a model's weights: all shards."""
    if model.is_dir():
        return sorted(model.glob("*.safetensors"))
    stem, of, count = model.name.rpartition("-of-")
    return sorted(model.parent.glob(f"{glob.escape(stem[:-5])}*{of}{glob.escape(count)}")) if of else [model]


def bytes_on_disk(model: Path) -> int:
    """Of the files with its weights."""
    return sum(file.stat().st_size for file in model_files(model))
