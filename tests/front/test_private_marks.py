"""The file of what was private: it forgets nothing, and what it cannot tell is private."""

import errno
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.front.private_marks import HEAD_BYTES, LEAST_CHARACTERS, NAME, SLOT, PrivateMarks
from surefoot.front.sensitivity import Privacy

PUBLIC, INTERNAL, PRIVATE = Privacy
LONG = "a long message, number {}, known wherever it stands"
TEXTS = ["hi", "go on", *(LONG.format(number) for number in range(4))]
Requests = list[tuple[list[str], Privacy]]


class Remembered:
    """The same in a dict of texts."""

    def __init__(self) -> None:
        self.levels: dict[tuple[str, ...] | str, Privacy] = {}

    def remember(self, messages: Sequence[str], level: Privacy) -> Privacy:
        keys: list[tuple[str, ...] | str] = list(accumulate((text,) for text in messages))
        keys += [text for text in messages if len(text) >= LEAST_CHARACTERS]
        past = max((self.levels.get(key, PUBLIC) for key in keys), default=PUBLIC)
        for key in keys:
            self.levels[key] = max(self.levels.get(key, PUBLIC), past, level)
        return past


REQUESTS = st.lists(st.tuples(st.lists(st.sampled_from(TEXTS), max_size=6), st.sampled_from(Privacy)), max_size=12)


@given(REQUESTS, st.sets(st.integers(0, 11)), st.booleans())
def test_nothing_is_forgotten(requests: Requests, restarts: set[int], is_small: bool) -> None:
    """Beside a dict. A file with a single bucket fills up, after which it is only more private."""
    with TemporaryDirectory() as folder:
        num_buckets = 1 if is_small else 1024
        marks, known = PrivateMarks(Path(folder) / NAME, num_buckets), Remembered()
        for number, (messages, level) in enumerate(requests):
            if number in restarts:
                marks.close()
                marks = PrivateMarks(Path(folder) / NAME, num_buckets)
            found, expected = marks.remember(messages, level), known.remember(messages, level)
            assert found >= expected if is_small else found == expected
        marks.close()


def test_a_full_bucket_is_private(tmp_path: Path) -> None:
    marks = PrivateMarks(tmp_path / NAME, 1)
    for number in range(32):
        assert marks.remember([f"{number}"], PRIVATE) is PUBLIC
    assert marks.remember(["another"], PUBLIC) is PRIVATE
    assert marks.remember(["31"], PUBLIC) is PRIVATE


def filled(path: Path) -> None:
    marks = PrivateMarks(path, 1)
    marks.remember(["secret"], PRIVATE)
    marks.sync()
    marks.close()


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Each bit of a slot, alone: the mark is there, or everything is private."""
    filled(tmp_path / NAME)
    whole = (tmp_path / NAME).read_bytes()
    for bit in range(8 * SLOT.size):
        damaged = bytearray(whole)
        damaged[HEAD_BYTES + bit // 8] ^= 1 << bit % 8
        (tmp_path / NAME).write_bytes(damaged)
        marks = PrivateMarks(tmp_path / NAME, 1)
        assert marks.remember(["secret"], PUBLIC) is PRIVATE
        marks.close()


def test_damage_outlives_a_restart(tmp_path: Path) -> None:
    filled(tmp_path / NAME)
    damaged = bytearray((tmp_path / NAME).read_bytes())
    damaged[HEAD_BYTES] ^= 1
    (tmp_path / NAME).write_bytes(damaged)
    marks = PrivateMarks(tmp_path / NAME, 1)
    assert marks.remember(["anything"], PUBLIC) is PRIVATE
    assert marks.remember([], PUBLIC) is PRIVATE
    marks.close()
    with pytest.raises(ValueError, match="damaged"):
        PrivateMarks(tmp_path / NAME, 1)


@pytest.mark.parametrize("size", [0, 10, HEAD_BYTES, HEAD_BYTES + 511, HEAD_BYTES + 513])
def test_a_file_of_another_length_is_refused(tmp_path: Path, size: int) -> None:
    filled(tmp_path / NAME)
    os.truncate(tmp_path / NAME, size)
    with pytest.raises(ValueError, match="damaged"):
        PrivateMarks(tmp_path / NAME, 1)


def test_a_file_that_shrinks_while_it_is_used(tmp_path: Path) -> None:
    marks = PrivateMarks(tmp_path / NAME, 1)
    os.truncate(tmp_path / NAME, HEAD_BYTES)
    assert marks.remember(["anything"], PUBLIC) is PRIVATE


def test_a_mark_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, write = PrivateMarks(tmp_path / NAME, 1), os.pwrite

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        if offset:
            raise OSError(errno.EIO, "Input/output error")
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", fail)
    assert marks.remember(["secret"], PRIVATE) is PRIVATE
    monkeypatch.undo()
    assert marks.remember(["anything"], PUBLIC) is PRIVATE
    with pytest.raises(ValueError, match="damaged"):
        PrivateMarks(tmp_path / NAME, 1)


def test_after_its_end_everything_is_private(tmp_path: Path) -> None:
    marks = PrivateMarks(tmp_path / NAME, 1)
    marks.close()
    assert marks.remember(["anything"], PUBLIC) is PRIVATE


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    filled(tmp_path / NAME)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert b"secret" not in (tmp_path / NAME).read_bytes()
