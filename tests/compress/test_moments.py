"""Second moments and largest values of a layer's inputs."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e ./compress")

from surefoot_compress.forward import GROUPS  # noqa: E402
from surefoot_compress.moments import STRIP, MomentsCollector  # noqa: E402


@pytest.mark.parametrize("width", [32, STRIP, 2 * STRIP + 96])
def test_sums_over_batches_equal_sums_over_all_rows(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(3, 20, width)).astype(np.float32)
    collector = MomentsCollector()
    for batch in (rows[:2], rows[2:]):
        for group in GROUPS:
            for name in group:
                collector(name, torch.from_numpy(batch), None)
    flat = rows.reshape(-1, width).astype(np.float64)
    for moments in collector.moments().values():
        assert np.allclose(moments.second, flat.T @ flat / len(flat), atol=1e-5)
        assert np.array_equal(moments.second, moments.second.T)
        assert np.array_equal(moments.largest, np.abs(rows).max(axis=(0, 1)))
        assert moments.num_rows == len(flat)
