"""Only regular files of bounded size and depth are read, inside the model's folder."""

import os
from pathlib import Path

import pytest

from surefoot.core.model_files import MAX_DEPTH, ModelFileError, check_depth, in_folder, open_regular, read_json


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_json(tmp_path / "config.json", 100)


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/fd", "/"])
def test_devices_and_folders_are_refused(path: str) -> None:
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_regular(Path(path))


def test_sizes_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": "' + "b" * 100 + '"}')
    assert read_json(tmp_path / "a.json", 200)
    with pytest.raises(ModelFileError, match="larger"):
        read_json(tmp_path / "a.json", 100)
    # A file of /proc: its size says 0.
    with pytest.raises(ModelFileError, match="larger"):
        read_json(Path("/proc/self/smaps"), 100)


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_depth_is_bounded(brackets: str) -> None:
    left, right = ('{"a":', "}") if brackets == "{}" else ("[", "]")
    check_depth((left * MAX_DEPTH + right * MAX_DEPTH).encode(), "it")
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(ModelFileError, match="deeper"):
            check_depth((left * depth + right * depth).encode(), "it")
    with pytest.raises(ModelFileError, match="deeper"):
        check_depth(left.encode() * 100_000, "it")


def test_brackets_in_strings_do_not_count() -> None:
    check_depth(b'["' + b"[" * 1000 + b'", "\\"[[' + b"[" * 1000 + b'", "\\\\", []]', "it")
    with pytest.raises(ModelFileError):
        check_depth(b'["\\\\"' + b"[" * 1000, "it")


def test_links_stay_inside_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "secret.json"
    folder.mkdir()
    outside.write_text("{}")
    (folder / "a.json").write_text("{}")
    (folder / "inside.json").symlink_to("a.json")
    (folder / "outside.json").symlink_to("../secret.json")
    (folder / "ring.json").symlink_to("ring.json")
    assert in_folder(folder, "inside.json") == folder / "inside.json"
    assert in_folder(folder, "none.json") is None
    with pytest.raises(ModelFileError, match="outside of the model's folder"):
        in_folder(folder, "outside.json")
    with pytest.raises(ModelFileError, match="leads nowhere"):
        in_folder(folder, "ring.json")


def test_links_to_blobs_of_the_hub_cache_are_allowed(tmp_path: Path) -> None:
    root = tmp_path / "models--owner--name"
    snapshot = root / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    (root / "blobs" / "123").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    assert in_folder(snapshot, "config.json") == snapshot / "config.json"
