import gc
import math
from pathlib import Path

import numpy as np
import pytest

from surefoot.ops import Backend, OpError, PeakKind, huge_empty, peak, read_bandwidth


def mapped(address: int) -> bool:
    """Whether the address is in one of this process's mappings."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return True
    return False


def test_huge_empty_is_aligned_zeroed_and_writable() -> None:
    array = huge_empty(3_000_001)
    assert array.nbytes == 3_000_001
    assert array.ctypes.data % (2 << 20) == 0
    assert not array.any()
    array[:] = 7
    assert array[-1] == 7


def test_huge_empty_lives_as_long_as_its_last_view() -> None:
    array = huge_empty(64 << 20)
    address = array.ctypes.data
    view = array[16:].view(np.int64)
    del array
    gc.collect()
    assert mapped(address)
    del view
    gc.collect()
    assert not mapped(address)


def test_huge_empty_refuses_what_it_cannot_reserve() -> None:
    with pytest.raises(MemoryError, match="could not reserve"):
        huge_empty(1 << 60)


def test_read_bandwidth_is_plausible(backends: list[Backend]) -> None:
    buffer = huge_empty(64 << 20)
    buffer[:] = 1
    for backend in backends:
        rates = [read_bandwidth(backend, buffer, repeats) for repeats in (1, 4)]
        assert all(1e8 < rate < 1e13 for rate in rates), rates


def test_read_bandwidth_refuses_unaligned_memory(backends: list[Backend]) -> None:
    with pytest.raises(OpError, match="aligned"):
        read_bandwidth(backends[0], huge_empty(4096)[1:])
    with pytest.raises(OpError, match="size"):
        read_bandwidth(backends[0], huge_empty(100))


def test_peak(backends: list[Backend], variant: str) -> None:
    for backend in backends:
        for kind in (PeakKind.INT8, PeakKind.FLOAT):
            rate = peak(backend, kind, 2000)
            assert math.isfinite(rate)
            assert 1e6 < rate < 1e15
        if variant == "amx":
            assert peak(backend, PeakKind.BF16_MATRIX, 2000) > 0
        else:
            with pytest.raises(OpError, match="option"):
                peak(backend, PeakKind.BF16_MATRIX, 2000)


def test_measurements_are_not_recorded(backends: list[Backend]) -> None:
    with backends[0].record(), pytest.raises(OpError, match="recorded"):
        peak(backends[0])
