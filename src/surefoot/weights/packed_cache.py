"""Packed weights kept on disk, so that a model's second load is little more than reading them.

A cache is one file per checkpoint and float format (packed_file.py). It is named by the checkpoint's files (path,
length, times of change), the format asked for, the layout and surefoot's version: any difference makes another. It is
written beside its place and renamed, so it is whole or not there; what has changed on the disk since is not used.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.formats import W8_GROUPED
from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat
from surefoot.weights.cache_folder import SUFFIX, note_use, own_folder
from surefoot.weights.checkpoint import Checkpoint, Tensor
from surefoot.weights.packed_file import LAYOUT, Runs, read_packed, write_packed
from surefoot.weights.reporting import Report, ReportingCheckpoint

LOWEST_PRIORITY = 19
PACKED_BY = ("formats/*.py", "weights/*.py", "ops/*.py", "ops/_lib/*", "models/load.py")
PAYS_S = 0.5  # a load that takes less is quick enough as it is


@dataclass(frozen=True)
class PackedCache:
    """Where packed weights are kept, and when: after a load that took least_s or longer. beside: they are written while
    the model is in use already."""

    folder: Path
    least_s: float = 0.0
    beside: bool = False


def default_cache() -> PackedCache:
    """Where it pays, in the user's folder for what can be made anew."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return PackedCache(base / "surefoot" / "packed", PAYS_S, beside=True)


class CachedCheckpoint:
    """A checkpoint whose packed matrices come from `kept`, or are made and remembered in `made`."""

    def __init__(self, checkpoint: Checkpoint, kept: Mapping[str, Runs]) -> None:
        self._checkpoint = checkpoint
        self._kept = kept
        self.made: dict[str, Runs] = {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._checkpoint.metadata

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        return self._checkpoint.tensors

    def floats(self, name: str) -> F32:
        return self._checkpoint.floats(name)

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        return self._checkpoint.integers(name, float_format)

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        key = f"fused {' '.join(names)}"
        if key not in self._kept and key not in self.made:
            self.made[key] = [self._checkpoint.fused(backend, names, float_format)]
        return (self._kept.get(key) or self.made[key])[0]

    def fused_experts(self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED) -> Runs:
        key = f"experts {' '.join(names)}"
        if key not in self._kept and key not in self.made:
            self.made[key] = self._checkpoint.fused_experts(backend, names, float_format)
        return self._kept.get(key) or self.made[key]


@contextmanager
def packed_cache(
    cache: PackedCache,
    model: Path,
    checkpoint: Checkpoint,
    float_format: str,
    report: Report = lambda done, total: None,
) -> Iterator[CachedCheckpoint]:
    """The checkpoint with its packed matrices from the cache; those that it lacks are put there at the end.

    A cache that cannot be used (a full or read-only disk, a folder that is not ours) costs the next load time, never
    this one its model.
    """
    place: Path | None = None
    kept: dict[str, Runs] = {}
    with suppress(OSError, RuntimeError):
        place = own_folder(cache.folder.expanduser()) / f"{cache_key(model, float_format)}{SUFFIX}"
        kept = _kept(place, report)
    cached = CachedCheckpoint(checkpoint if kept else ReportingCheckpoint(checkpoint, report), kept)
    began = time.monotonic()
    yield cached
    if place is not None and cached.made and time.monotonic() - began >= cache.least_s:
        _keep(place, {**kept, **cached.made}, cache.beside)


def _kept(place: Path, report: Report) -> dict[str, Runs]:
    """Nothing if it is not there or cannot be used: it is then made anew."""
    try:
        kept = read_packed(place, report)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    note_use(place)
    return kept


def _keep(place: Path, runs: Mapping[str, Runs], beside: bool) -> None:
    def write() -> None:
        with suppress(OSError):
            if beside:  # of this thread alone, as Linux has it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
            write_packed(place, runs)

    if beside:
        threading.Thread(target=write, name="surefoot-cache", daemon=True).start()
    else:
        write()


def cache_key(model: Path, float_format: str) -> str:
    """Of the files' times of change also the one that nobody can set: copies may bring the time of their contents."""
    facts = [(str(file.resolve()), *_state(file.stat())) for file in (*_files(model), *_code())]
    text = json.dumps([LAYOUT, __version__, float_format, facts])
    return f"{model.stem}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _code() -> list[Path]:
    """What makes packed weights of a checkpoint: it may change while the version stays, where surefoot is developed."""
    package = Path(__file__).parents[1]
    return sorted(file for part in PACKED_BY for file in package.glob(part))


def _state(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def fingerprint(model: Path, *made_by: object) -> str:
    """Of the model's files as they are now, and of what is made of them."""
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in _files(model)]
    return hashlib.sha256(json.dumps([*made_by, facts]).encode()).hexdigest()


def _files(model: Path) -> list[Path]:
    return sorted(model.glob("*.safetensors")) if model.is_dir() else sorted(model.parent.glob(_shards(model)))


def _shards(model: Path) -> str:
    stem, of, count = model.name.rpartition("-of-")
    return f"{stem[:-5]}*{of}{count}" if of else model.name
