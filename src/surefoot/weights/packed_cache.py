"""Packed weights kept on disk, so that a model's second load is little more than reading them.

A cache is one file per checkpoint and float format: an index in JSON, then every packed matrix as the kernels want it,
read into huge pages in one go. It is named by the checkpoint's files (path, length, time of change), the format asked
for, the layout and surefoot's version: any difference makes another. It is written beside its place and renamed, so it
is whole or not there. Caches are the user's own: their content is believed.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.formats import W8_GROUPED
from surefoot.ops.arrays import ALIGNMENT, F32, U8, huge_empty
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat
from surefoot.weights.checkpoint import Checkpoint, Tensor

LAYOUT = "SFPACK2"  # as native/kernels/pack.h names it
STEP = 1 << 23  # read at a time by one thread
Runs = list[list[PackedWeights]]


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
def packed_cache(folder: Path, model: Path, checkpoint: Checkpoint, float_format: str) -> Iterator[CachedCheckpoint]:
    """The checkpoint with its packed matrices from the folder's cache; those that it lacks are put there at the end."""
    place = folder / f"{cache_key(model, float_format)}.packed"
    kept = _read(place) if place.exists() else {}
    cached = CachedCheckpoint(checkpoint, kept)
    yield cached
    if cached.made:
        with suppress(OSError):  # a full or read-only disk costs the next load time, not this one its model
            _write(place, {**kept, **cached.made})


def cache_key(model: Path, float_format: str) -> str:
    return f"{model.stem}-{fingerprint(model, LAYOUT, __version__, float_format)[:24]}"


def fingerprint(model: Path, *made_by: object) -> str:
    """Of the model's files as they are now, and of what is made of them."""
    files = sorted(model.glob("*.safetensors")) if model.is_dir() else sorted(model.parent.glob(_shards(model)))
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([*made_by, facts]).encode()).hexdigest()


def _shards(model: Path) -> str:
    stem, of, count = model.name.rpartition("-of-")
    return f"{stem[:-5]}*{of}{count}" if of else model.name


# ---- the file: 8 bytes of the index's length, the index, then the matrices, each at a multiple of 64 ----


def _read(place: Path) -> dict[str, Runs]:
    try:
        with place.open("rb") as file:
            index = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start = -(-file.tell() // ALIGNMENT) * ALIGNMENT
            nbytes = os.fstat(file.fileno()).st_size - start
            if nbytes != index["nbytes"]:
                return {}
            data = _read_bytes(file.fileno(), start, nbytes)
        return {key: [[_packed(data, one) for one in run] for run in runs] for key, runs in index["runs"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # it is made anew


def _packed(data: U8, entry: Mapping[str, Any]) -> PackedWeights:
    part = data[entry["at"] : entry["at"] + entry["nbytes"]]
    if bytes(part[:7]) != LAYOUT.encode() or part.nbytes != entry["nbytes"]:
        raise ValueError("not a packed matrix")
    return PackedWeights(WeightFormat(**entry["format"]), entry["n"], entry["k"], part)


def _read_bytes(file: int, start: int, nbytes: int) -> U8:
    data = huge_empty(nbytes)
    view = data.data

    def fill(first: int) -> None:
        end = min(first + STEP, nbytes)
        while first < end:
            first += os.preadv(file, [view[first:end]], start + first) or end

    os.posix_fadvise(file, start, nbytes, os.POSIX_FADV_WILLNEED)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fill, range(0, nbytes, STEP)))
    return data


def _write(place: Path, runs: Mapping[str, Runs]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    index, matrices = _index(runs)
    text = json.dumps(index).encode()
    beside = place.with_suffix(f".{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for matrix in matrices:
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                file.write(matrix.data.data)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _index(runs: Mapping[str, Runs]) -> tuple[dict[str, Any], list[PackedWeights]]:
    """Where each matrix goes, counted from the first, and all of them in that order."""
    matrices, at, entries = list[PackedWeights](), 0, dict[str, Any]()
    for key, lists in runs.items():
        entries[key] = []
        for run in lists:
            entries[key].append([])
            for one in run:
                at = -(-at // ALIGNMENT) * ALIGNMENT
                entry = {"format": asdict(one.format), "n": one.n, "k": one.k, "at": at, "nbytes": one.nbytes}
                entries[key][-1].append(entry)
                matrices.append(one)
                at += one.nbytes
    return {"nbytes": at, "runs": entries}, matrices
