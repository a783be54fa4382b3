"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from surefoot.machine.atomic_write import atomic_write


def test_what_is_stopped_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "file"
    with atomic_write(place) as beside:
        beside.write_text("first")
        assert not place.exists()
    with pytest.raises(KeyboardInterrupt):
        write_half(place)
    assert place.read_text() == "first"
    assert list(tmp_path.iterdir()) == [place]


def write_half(place: Path) -> None:
    with atomic_write(place) as beside:
        beside.write_text("sec")
        raise KeyboardInterrupt
