"""Packed weights from the cache: the same bytes, made once, and made anew whenever anything has changed."""

import os
from pathlib import Path

import numpy as np
import pytest

from surefoot.formats import W8_GROUPED
from surefoot.ops import Backend, PackedWeights
from surefoot.weights import GgufFile
from surefoot.weights.packed_cache import cache_key, packed_cache
from tests.weights.gguf_files import write

NAMES = (["a.weight"], ["b.weight", "c.weight"], ["d.weight"])


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(threads=1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf")


def load(backend: Backend, folder: Path, model: Path) -> tuple[list[PackedWeights], int]:
    """All matrices, and how many of them had to be packed."""
    with packed_cache(folder, model, GgufFile(model), "w8") as cached:
        packed = [one for names in NAMES for one in cached.fused(backend, names, W8_GROUPED)]
        for run in cached.fused_experts(backend, ["experts.weight"], W8_GROUPED):
            packed.extend(run)
        return packed, len(cached.made)


def same(got: list[PackedWeights], want: list[PackedWeights]) -> bool:
    return all(
        (a.format, a.n, a.k) == (b.format, b.n, b.k) and np.array_equal(a.data, b.data)
        for a, b in zip(got, want, strict=True)
    )


def test_the_second_load_packs_nothing(backend: Backend, model: Path, tmp_path: Path) -> None:
    first, num_made = load(backend, tmp_path / "cache", model)
    assert num_made == 4
    second, num_made = load(backend, tmp_path / "cache", model)
    assert num_made == 0
    assert same(second, first)
    assert all(one.data.ctypes.data % 64 == 0 for one in second)


def test_another_file_or_format_is_another_cache(model: Path, backend: Backend, tmp_path: Path) -> None:
    key = cache_key(model, "w8")
    assert cache_key(model, "w4") != key
    os.utime(model, ns=(1, 1))
    assert cache_key(model, "w8") != key


def test_every_shard_counts(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", split=2)
    shards = sorted(tmp_path.glob("model-*.gguf"))
    assert len(shards) > 1
    key = cache_key(shards[0], "w8")
    os.utime(shards[-1], ns=(1, 1))
    assert cache_key(shards[0], "w8") != key


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_damaged_cache_is_made_anew(backend: Backend, model: Path, tmp_path: Path, keep: int) -> None:
    first, _ = load(backend, tmp_path / "cache", model)
    (place,) = (tmp_path / "cache").iterdir()
    whole = place.read_bytes()
    place.write_bytes(whole[:keep])
    again, num_made = load(backend, tmp_path / "cache", model)
    assert num_made == 4
    assert same(again, first)
    assert place.read_bytes() == whole


def test_a_folder_that_cannot_be_written_does_no_harm(backend: Backend, model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    _, num_made = load(backend, tmp_path / "cache", model)
    assert num_made == 4
