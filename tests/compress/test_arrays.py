"""Arrays in files."""

from pathlib import Path

import numpy as np

from surefoot_compress.arrays import load_arrays, save_arrays


def test_arrays_round_trip_through_a_file(tmp_path: Path) -> None:
    stored, plain = np.arange(6, dtype=np.float32).reshape(2, 3).T, tmp_path / "plain"
    save_arrays({"a": stored}, tmp_path / "arrays", {"step": "3"})
    arrays, metadata = load_arrays(tmp_path / "arrays")
    assert np.array_equal(arrays["a"], stored)
    assert metadata == {"step": "3"}
    plain.touch()
    assert (tmp_path / "arrays").stat().st_mode == plain.stat().st_mode  # the same permissions as other files
