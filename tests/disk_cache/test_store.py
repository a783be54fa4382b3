"""The store gives back what was written, or nothing."""

import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.disk_cache import NO_PARENT, PUBLIC_ID, BlockHasher, BlockStore, CacheInUse
from surefoot.disk_cache.index import IndexedBlock, Place
from surefoot.disk_cache.record import HEADER_BYTES, DamagedRecord, make_header, read_header
from surefoot.disk_cache.store import best_blocks
from surefoot.machine.own_folder import UnsafeFolder
from tests.disk_cache.blocks import HASHER, name_of, payload_of, segments, write

BUDGET = 1 << 20


def test_blocks_survive_a_restart(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "cache", BUDGET)
    names = [write(store, number) for number in range(200)]
    assert [store.read(name.digest) for name in names] == [payload_of(number) for number in range(200)]
    store.close()
    again = BlockStore(tmp_path / "cache", BUDGET)
    assert [again.read(name.digest) for name in names] == [payload_of(number) for number in range(200)]
    assert again.read(name_of(200).digest) is None
    assert again.counters.num_hits == 200
    again.close()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "cache", BUDGET)
    write(store, 1)
    store.flush()
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "cache").iterdir()}
    assert len(modes) >= 4
    assert set(modes.values()) == {0o600}
    store.close()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafeFolder):
        BlockStore(tmp_path, BUDGET)


def test_a_folder_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "made by hand"
    folder.mkdir()
    for _ in range(2):  # empty, and one of an older version
        folder.chmod(0o755)
        BlockStore(folder, BUDGET).close()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_with_files_of_others_stays_open_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(UnsafeFolder, match="name a folder of its own"):
        BlockStore(tmp_path, BUDGET)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_second_process_is_refused_by_the_first_ones_number(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    script = (
        f"from pathlib import Path; from surefoot.disk_cache import BlockStore; BlockStore(Path({str(tmp_path)!r}), 99)"
    )
    second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert second.returncode
    assert f"process {os.getpid()} uses the cache" in second.stderr
    store.close()
    assert not subprocess.run([sys.executable, "-c", script], check=False).returncode


def test_a_store_is_opened_once(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    with pytest.raises(CacheInUse):
        BlockStore(tmp_path, BUDGET)
    store.close()


@pytest.mark.parametrize("damage", ["lost", "garbage", "torn", "empty"])
def test_the_index_is_rebuilt_from_the_segments(tmp_path: Path, damage: str) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(300)]
    store.close()
    index = tmp_path / "index.sqlite"
    data = index.read_bytes()
    if damage == "lost":
        index.unlink()
    else:
        index.write_bytes(
            {"garbage": random.Random(1).randbytes(len(data)), "torn": data[: len(data) // 2]}.get(damage, b"")
        )
    again = BlockStore(tmp_path, BUDGET)
    assert [again.read(name.digest) for name in names] == [payload_of(number) for number in range(300)]
    again.close()


def test_a_torn_tail_is_dropped_and_written_over(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(3)]
    store.close()
    (segment,) = segments(tmp_path)
    os.truncate(segment, segment.stat().st_size - 1)
    again = BlockStore(tmp_path, BUDGET)
    assert [again.read(name.digest) is not None for name in names] == [True, True, False]
    assert segment.stat().st_size == 2 * (HEADER_BYTES + 1000)
    write(again, 2)
    again.close()
    last = BlockStore(tmp_path, BUDGET)
    assert [last.read(name.digest) for name in names] == [payload_of(number) for number in range(3)]
    last.close()


def test_what_a_killed_process_did_not_index_is_found(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    first = write(store, 1)
    store.flush()
    second = write(store, 2)
    assert store.read(second.digest) == payload_of(2), "a block is found before the index knows it"
    script = f"""if True:
        import os
        from pathlib import Path
        from surefoot.disk_cache import BlockStore
        from tests.disk_cache.blocks import write
        store = BlockStore(Path({str(tmp_path)!r}), {BUDGET})
        write(store, 3)
        os.kill(os.getpid(), 9)
    """
    store.close()
    subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2])
    again = BlockStore(tmp_path, BUDGET)
    assert [again.read(name.digest) for name in (first, second, name_of(3))] == [payload_of(n) for n in (1, 2, 3)]
    again.close()


def test_the_budget_holds(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    rng = random.Random(5)
    for number in range(3000):
        write(store, number, size=rng.randrange(100, 5000))
        assert sum(file.stat().st_size for file in segments(tmp_path)) <= BUDGET + store.segment_bytes
    assert store.total_bytes > BUDGET // 2
    assert store.counters.num_evicted > 1000
    held = sum(store.contains(name_of(number).digest) for number in range(3000))
    assert held == sum(holding.num_blocks for holding in store.holdings())
    store.close()


def test_blocks_in_use_outlast_others(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    used = [write(store, number) for number in range(50)]
    for number in range(50, 4000):
        write(store, number)
        if number % 50 == 0:
            for name in used:
                store.read(name.digest)
    assert all(store.contains(name.digest) for name in used)
    assert not store.contains(name_of(500).digest)
    store.close()


def test_the_budget_may_shrink(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    for number in range(900):
        write(store, number)
    store.close()
    again = BlockStore(tmp_path, BUDGET // 4)
    for number in range(900, 1300):
        write(again, number)
    assert again.total_bytes <= BUDGET // 4 + again.segment_bytes
    again.prune(0)
    assert again.total_bytes == 0
    assert segments(tmp_path) == []
    again.close()


def test_a_removed_segments_number_is_not_used_again(tmp_path: Path) -> None:
    """A reader that has looked a block up just before would read another block's bytes there."""
    store = BlockStore(tmp_path, BUDGET)
    write(store, 1)
    store.close()
    again = BlockStore(tmp_path, BUDGET)
    (removed,) = segments(tmp_path)
    again.prune(0)
    write(again, 2)
    assert removed not in segments(tmp_path)
    again.close()


def test_a_block_larger_than_a_segment_is_not_kept(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    assert not store.write(name_of(1), bytes(store.segment_bytes))
    store.close()


def test_forgetting_removes_the_bytes(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    for number in range(300):
        write(store, number, ("ann", "bob", None)[number % 3])
    assert store.forget(HASHER.namespace("bob")) == 100
    on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for number in range(300):
        is_bobs = number % 3 == 1
        assert (payload_of(number)[:200] in on_disk) != is_bobs
        name = name_of(number, ("ann", "bob", None)[number % 3])
        assert (name.digest in on_disk) != is_bobs
        assert (store.read(name.digest) is None) == is_bobs
    store.close()
    again = BlockStore(tmp_path, BUDGET)
    assert sum(holding.num_blocks for holding in again.holdings()) == 200
    again.close()


def test_verify_counts_damage(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, BUDGET)
    names = [write(store, number) for number in range(20)]
    store.close()
    (segment,) = segments(tmp_path)
    data = bytearray(segment.read_bytes())
    data[7 * (HEADER_BYTES + 1000) + 500] ^= 1
    segment.write_bytes(data)
    again = BlockStore(tmp_path, BUDGET)
    report = again.verify()
    assert (report.num_blocks, report.num_damaged) == (20, 1)
    assert [number for number, name in enumerate(names) if again.read(name.digest) is None] == [7]
    again.close()


def test_counters_do_not_use_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> float:
        raise AssertionError("a clock was read")

    for clock in ("time", "time_ns", "monotonic"):
        monkeypatch.setattr(f"time.{clock}", fail)
    store = BlockStore(tmp_path, BUDGET)
    for number in range(2000):
        write(store, number)
    store.close()


def test_names_differ_by_model_user_parent_and_tokens() -> None:
    other = BlockHasher(b"another model")
    keyed = BlockHasher(b"a model", bytes(32))
    ann, bob = HASHER.namespace("ann"), HASHER.namespace("bob")
    names = {
        HASHER.child(HASHER.root, ann, (1, 2)), HASHER.child(HASHER.root, bob, (1, 2)),
        HASHER.child(HASHER.root, HASHER.namespace(None), (1, 2)),
        HASHER.child(HASHER.root, HASHER.namespace(""), (1, 2)),
        HASHER.child(HASHER.root, ann, (2, 1)), HASHER.child(HASHER.root, ann, (1,)),
        HASHER.child(HASHER.child(HASHER.root, ann, (1,)), ann, (2,)),
        other.child(other.root, other.namespace("ann"), (1, 2)),
        keyed.child(keyed.root, keyed.namespace("ann"), (1, 2)),
    }  # fmt: skip
    assert len(names) == 9


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    header = make_header(name_of(1), payload_of(1))
    packed = header.pack()
    assert read_header(packed) == header
    for bit in range(8 * len(packed)):
        data = bytearray(packed)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedRecord):
            read_header(data)


def indexed(number: int, parent: int | None, worth: float) -> IndexedBlock:
    digest = bytes([number]) * 32
    return IndexedBlock(digest, NO_PARENT if parent is None else bytes([parent]) * 32, Place(1, number, 10), worth)


def test_a_kept_block_keeps_its_parents() -> None:
    path = [indexed(1, None, 1.0), indexed(2, 1, 5.0), indexed(3, 2, 2.0), indexed(4, None, 4.0)]
    assert best_blocks(path, 0.5, 20) == path[:2]
    assert best_blocks(path, 0.5, 30) == [*path[:2], path[3]]
    assert best_blocks(path, 4.5, 40) == path[:2]
    assert best_blocks(path, 0.5, 5) == []


def test_a_record_for_another_server_is_its_owners(tmp_path: Path) -> None:
    ann, bob = HASHER.namespace("ann"), HASHER.namespace("bob")
    store = BlockStore(tmp_path, BUDGET)
    name = write(store, 1)
    for _ in range(2):  # before and after the index knows of it
        record = store.owned_record(name.digest, (PUBLIC_ID, ann))
        assert record is not None
        header = read_header(record)
        assert header.name == name
        header.check(record[HEADER_BYTES:])
        assert record[HEADER_BYTES:] == payload_of(1)
        assert store.owned_record(name.digest, (PUBLIC_ID, bob)) is None
        assert (store.owner(name.digest), store.owner(bytes(32))) == (ann, None)
        store.flush()
    assert store.counters.num_hits == 0
    file = segments(tmp_path)[0]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert store.owned_record(name.digest, (ann,)) is None
    assert store.counters.num_damaged == 1
    store.close()
