"""Packed weights from the cache have the same bytes. They are packed once, and again after any change."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from surefoot.formats import W8_GROUPED
from surefoot.ops import Backend, PackedWeights
from surefoot.weights import GgufFile, cache_folder
from surefoot.weights.background_writes import BackgroundWrites
from surefoot.weights.cache_folder import make_room, note_use, remove_unfinished, unfinished
from surefoot.weights.packed_cache import PackedCache, cache_key, packed_cache, writing_beside
from tests.weights.gguf_files import write

NAMES = (["a.weight"], ["b.weight", "c.weight"], ["d.weight"])


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(threads=1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf")


def load(backend: Backend, folder: Path, model: Path) -> tuple[list[PackedWeights], int]:
    """All matrices, and the number of matrices that had to be packed."""
    with packed_cache(PackedCache(folder), model, GgufFile(model), "w8") as cached:
        packed = [matrix for names in NAMES for matrix in cached.fused(backend, names, W8_GROUPED)]
        for run in cached.fused_experts(backend, ["experts.weight"], W8_GROUPED):
            packed.extend(run)
        return packed, len(cached.packed)


def same(got: list[PackedWeights], want: list[PackedWeights]) -> bool:
    return all(
        (a.format, a.n, a.k) == (b.format, b.n, b.k) and np.array_equal(a.data, b.data)
        for a, b in zip(got, want, strict=True)
    )


def test_the_second_load_packs_nothing(backend: Backend, model: Path, tmp_path: Path) -> None:
    first, num_packed = load(backend, tmp_path / "cache", model)
    assert num_packed == 4
    second, num_packed = load(backend, tmp_path / "cache", model)
    assert num_packed == 0
    assert same(second, first)
    assert all(matrix.data.ctypes.data % 64 == 0 for matrix in second)


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
    again, num_packed = load(backend, tmp_path / "cache", model)
    assert num_packed == 4
    assert same(again, first)
    assert place.read_bytes() == whole


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 0.999])
def test_a_flipped_byte_is_found(backend: Backend, model: Path, tmp_path: Path, share: float) -> None:
    first, _ = load(backend, tmp_path / "cache", model)
    (place,) = (tmp_path / "cache").iterdir()
    data = bytearray(place.read_bytes())
    data[int(share * len(data))] ^= 0x10
    place.write_bytes(data)
    again, num_packed = load(backend, tmp_path / "cache", model)
    assert num_packed == 4
    assert same(again, first)


def test_what_others_could_have_written_is_not_used(backend: Backend, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    load(backend, folder, model)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (place,) = folder.iterdir()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    place.chmod(0o666)
    assert load(backend, folder, model)[1] == 4
    assert stat.S_IMODE(place.stat().st_mode) == 0o600, "it was written anew"
    folder.chmod(0o777)
    assert load(backend, folder, model)[1] == 4
    folder.chmod(0o700)
    assert load(backend, folder, model)[1] == 0
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert load(backend, folder, model)[1] == 4


def test_a_file_of_the_same_length_and_time_is_another(model: Path) -> None:
    """Images and archives may give all files the same time."""
    key, before, data = cache_key(model, "w8"), model.stat(), model.read_bytes()
    model.unlink()
    model.write_bytes(data[:-1] + b"x")
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert model.stat().st_mtime_ns == before.st_mtime_ns
    assert cache_key(model, "w8") != key


def test_the_folder_is_bound_and_the_longest_unused_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may use 250 of 1,000 bytes of disk."""

    def disk(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=1000 - sum(file.stat().st_size for file in folder.iterdir()))

    monkeypatch.setattr(cache_folder.shutil, "disk_usage", disk)
    for number in range(3):
        file = tmp_path / f"{number}.packed"
        file.write_bytes(b"x" * 70)
        os.utime(file, ns=(number, number))
    note_use(tmp_path / "0.packed")
    assert not make_room(tmp_path, 251)
    assert len(list(tmp_path.iterdir())) == 3, "nothing is removed for what cannot be kept"
    assert make_room(tmp_path, 100)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.packed", "2.packed"]
    assert make_room(tmp_path, 250)
    assert list(tmp_path.iterdir()) == []


LEFT = "a.packed.7.part"


def test_unfinished_files_of_ended_processes_go(backend: Backend, model: Path, tmp_path: Path) -> None:
    """Also where nothing new is cached. What a process still writes stays, however old it is."""
    folder = tmp_path / "cache"
    load(backend, folder, model)
    (folder / LEFT).write_bytes(b"x")
    with unfinished(folder / "b.packed") as (_, beside):
        os.utime(beside, (1, 1))
        assert load(backend, folder, model)[1] == 0
        assert [file.name for file in folder.glob("*.part")] == [beside.name]
    assert not list(folder.glob("*.part"))


def test_a_killed_process_leaves_nothing_for_long(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from surefoot.weights.cache_folder import unfinished\n"
        "with unfinished(Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path / "a.packed"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        remove_unfinished(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
        process.kill()
    assert len(list(tmp_path.iterdir())) == 1
    remove_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())


def cached_beside(backend: Backend, model: Path, cache: PackedCache) -> None:
    with packed_cache(cache, model, GgufFile(model), "w8") as cached:
        cached.fused(backend, ["a.weight"], W8_GROUPED)


def test_only_where_it_pays_and_beside(backend: Backend, model: Path, tmp_path: Path) -> None:
    for least_s, expected in ((3600.0, 0), (0.0, 1)):
        cache = PackedCache(tmp_path / "cache", least_s, BackgroundWrites())
        cached_beside(backend, model, cache)
        assert not list(tmp_path.glob("cache/*")), "nothing is written before it is told to begin"
        with writing_beside(cache) as begin:
            begin()
            assert cache.background is not None
            cache.background.join()
        assert len(list(tmp_path.glob("cache/*"))) == expected


def test_a_write_that_is_stopped_leaves_nothing(backend: Backend, model: Path, tmp_path: Path) -> None:
    cache = PackedCache(tmp_path / "cache", background=BackgroundWrites(rate=1.0))  # a byte a second
    cached_beside(backend, model, cache)
    with writing_beside(cache) as begin:
        begin()
        while not list((tmp_path / "cache").glob("*.part")):
            time.sleep(0.01)
    assert not list((tmp_path / "cache").iterdir())


def test_the_file_is_the_same_at_any_pace(backend: Backend, model: Path, tmp_path: Path) -> None:
    load(backend, tmp_path / "at once", model)
    cache = PackedCache(tmp_path / "paced", background=BackgroundWrites())
    with packed_cache(cache, model, GgufFile(model), "w8") as cached:
        for names in NAMES:
            cached.fused(backend, names, W8_GROUPED)
        cached.fused_experts(backend, ["experts.weight"], W8_GROUPED)
    assert cache.background is not None
    cache.background.begin()
    cache.background.join()
    (at_once,), (paced,) = (tmp_path / "at once").iterdir(), (tmp_path / "paced").iterdir()
    assert paced.read_bytes() == at_once.read_bytes()


def test_a_file_is_named_after_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen2.5-Coder-1.5B"
    folder.mkdir()
    assert cache_key(folder, "w8").startswith("Qwen2.5-Coder-1.5B-")
    assert cache_key(write(tmp_path / "Small-0.5.gguf"), "w8").startswith("Small-0.5-")


def test_reading_is_reported_from_either_place(backend: Backend, model: Path, tmp_path: Path) -> None:
    shares: list[float] = []

    def report(done: int, total: int) -> None:
        shares.append(done / total)

    for _ in range(2):
        shares.clear()
        with packed_cache(PackedCache(tmp_path / "cache"), model, GgufFile(model), "w8", report) as cached:
            for names in NAMES:
                cached.fused(backend, names, W8_GROUPED)
        assert shares
        assert shares == sorted(shares)
        assert 0 < shares[-1] <= 1


def test_an_unusable_folder_does_not_fail_the_load(backend: Backend, model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    _, num_packed = load(backend, tmp_path / "cache", model)
    assert num_packed == 4
