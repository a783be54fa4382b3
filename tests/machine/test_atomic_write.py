"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from surefoot.machine.atomic_write import atomic_write


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("sec")
        raise KeyboardInterrupt
