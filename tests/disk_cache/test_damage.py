"""Damage of any kind is a miss, never another block's bytes and never a failed start."""

import errno
import fcntl
import itertools
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from surefoot.disk_cache import BlockStore
from tests.disk_cache.blocks import name_of, payload_of, segments, write
from tests.disk_cache.kill_loop import run_kills
from tests.faults.injector import environment

BUDGET = 256 << 20
SMALL_BUDGET = 200_000


@pytest.mark.parametrize("num_flips", [300, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_flipped_bits_are_misses_and_are_counted(tmp_path: Path, num_flips: int) -> None:
    store, rng = BlockStore(tmp_path, BUDGET), random.Random(3)
    for number in range(40):
        write(store, number)
    store.flush()
    for count in range(num_flips):
        number = rng.randrange(40)
        digest = name_of(number).digest
        place = store._find(digest)
        assert place is not None
        flip(tmp_path / f"{place.segment:08}.blocks", 8 * place.offset + rng.randrange(8 * place.length))
        assert store.read(digest) is None
        assert store.counters.num_damaged == count + 1
        write(store, number)
        assert store.read(digest) == payload_of(number)
    store.close()


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        (byte,) = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("num_flips", [40, pytest.param(1000, marks=pytest.mark.nightly)])
def test_flipped_bits_of_the_index_are_misses_at_worst(tmp_path: Path, num_flips: int) -> None:
    whole, rng = tmp_path / "whole", random.Random(4)
    store = BlockStore(whole, BUDGET)
    for number in range(100):
        write(store, number)
    store.close()
    size = (whole / "index.sqlite").stat().st_size
    for count in range(num_flips):
        folder = tmp_path / str(count)
        shutil.copytree(whole, folder)
        folder.chmod(0o700)
        flip(folder / "index.sqlite", rng.randrange(8 * size))
        damaged = BlockStore(folder, BUDGET)
        for number in range(100):
            assert damaged.read(name_of(number).digest) in (None, payload_of(number))
        write(damaged, 100)
        damaged.close()
        shutil.rmtree(folder)


def test_a_rebuilt_index_finds_what_stands_before_the_damage(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(20)]
    place = store._find(names[12].digest)
    assert place is not None
    store.close()
    flip(segments(tmp_path)[0], 8 * place.offset)
    (tmp_path / "index.sqlite").unlink()
    again = BlockStore(tmp_path, BUDGET)
    assert [again.read(name.digest) for name in names[:12]] == [payload_of(number) for number in range(12)]
    assert not any(map(again.contains, [name.digest for name in names[12:]]))
    again.close()


@pytest.mark.parametrize("num_kills", [8, pytest.param(1000, marks=pytest.mark.nightly)])
def test_no_kill_loses_or_tears_a_block(tmp_path: Path, num_kills: int) -> None:
    report = run_kills(tmp_path, num_kills, seed=1)
    assert report.num_kills == num_kills
    assert report.num_found > 0


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_failing_call_is_a_miss_at_worst(every: int) -> None:
    command = [sys.executable, "-m", "tests.disk_cache.fault_run", "--every", str(every)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, env=environment(), cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("runs") == 8


def test_a_read_only_folder_is_refused_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    BlockStore(folder, BUDGET).close()
    (folder / "lock").unlink()
    folder.chmod(0o500)
    if os.geteuid() == 0:
        pytest.skip("root may write to any folder")
    with pytest.raises(PermissionError):
        BlockStore(folder, BUDGET)


def test_a_read_that_fails_at_the_opening_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(20)]
    store.close()
    (tmp_path / "index.sqlite").unlink()
    real, calls = os.pread, itertools.count()

    def failing(file: int, length: int, offset: int) -> bytes:
        if next(calls) == 7:
            raise OSError("a bad sector")
        return real(file, length, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing)
        store = BlockStore(tmp_path, BUDGET)
    assert store.counters.num_read_errors == 1
    assert [store.read(name.digest) is not None for name in names] == [True] * 7 + [False] * 13
    write(store, 20)
    store.close()
    again = BlockStore(tmp_path, BUDGET)
    assert all(again.read(name_of(number).digest) == payload_of(number) for number in range(21))
    again.close()


def test_a_full_disk_has_room_after_an_eviction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth keeping of the evicted segment cannot be copied, and goes with it."""
    store = filled(tmp_path)
    before, real = store.total_bytes, os.writev

    def full(file: int, parts: list[bytes]) -> int:
        if sum(path.stat().st_size for path in segments(tmp_path)) >= before:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, parts)

    monkeypatch.setattr(os, "writev", full)
    store.prune(before - 1)
    assert store.total_bytes < before
    assert store.counters.num_write_errors > 0
    name = write(store, 999)
    assert store.read(name.digest) == payload_of(999)
    store.close()


def test_a_folder_in_which_nothing_can_be_removed_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        for number in range(1000, 1400):
            with suppress(OSError):
                write(store, number)
        on_disk = sum(path.stat().st_size for path in segments(tmp_path))
        assert on_disk == store.total_bytes <= SMALL_BUDGET + store.segment_bytes
        assert store.counters.num_write_errors > 100
    write(store, 1400)
    assert all(store.read(name_of(number).digest) in (None, payload_of(number)) for number in range(1401))
    store.close()


def filled(folder: Path) -> BlockStore:
    store = BlockStore(folder, SMALL_BUDGET)
    for number in range(400):
        write(store, number)
    for number in range(0, 400, 3):  # so that every segment has blocks that are worth keeping
        store.read(name_of(number).digest)
    assert store.counters.num_evicted > 0
    return store


def test_a_folder_without_locks_is_refused_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network folders are."""

    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        with pytest.raises(OSError, match="No locks available"):
            BlockStore(tmp_path, BUDGET)
    BlockStore(tmp_path, BUDGET).close()


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        BlockStore(file / "cache", BUDGET)


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(20)]
    for jump in (0, 4_000_000_000):
        for file in tmp_path.iterdir():
            os.utime(file, (jump, jump))
        assert all(store.read(name.digest) == payload_of(number) for number, name in zip(itertools.count(), names))
        store.close()
        store = BlockStore(tmp_path, BUDGET)
    store.close()
