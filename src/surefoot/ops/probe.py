"""Measures memory bandwidth and peak arithmetic on a backend's threads."""

import time
from enum import IntEnum
from itertools import accumulate

from surefoot.ops import abi
from surefoot.ops.arrays import U8, Array, huge_empty, pointer
from surefoot.ops.backend import Backend, OpError

GRANULE_BYTES = 512  # two cache lines of each of four streams
BURST_SECONDS = 0.02  # long enough for the clock, short enough to fall between other programs' work


class PeakKind(IntEnum):
    """The arithmetic to measure."""

    INT8 = 0  # the variant's widest dot products
    FLOAT = 1  # float32 fma
    BF16_MATRIX = 2  # amx only


def bandwidth_buffer(backend: Backend, nbytes: int) -> U8:
    """Memory whose reading tells the bandwidth: each NUMA node's part on that node. To touch it takes a while."""
    buffer = huge_empty(nbytes)
    if backend.pages.are_placed:
        threads = accumulate(share.threads for share in backend.placement.shares)
        backend.pages.split(buffer.ctypes.data, [nbytes * count // backend.threads for count in threads])
    touch(buffer)
    return buffer


def touch(buffer: U8) -> None:
    """Gives it pages of its own: untouched pages would all be the same page of zeros."""
    buffer[::4096] = 1


def read_bandwidth(backend: Backend, buffer: Array, repeats: int = 1) -> float:
    """Bytes per second at which all threads together read the buffer."""
    if backend.recording:
        raise OpError("a measurement cannot be recorded")
    nbytes = buffer.nbytes // GRANULE_BYTES * GRANULE_BYTES
    args = abi.ReadBandwidthArgs(pointer(buffer), nbytes, repeats, 0)
    backend.run("read_bandwidth", args, buffer)
    return float(nbytes * repeats / args.seconds)


def peak(backend: Backend, kind: PeakKind = PeakKind.INT8, iterations: int = 100_000) -> float:
    """Multiplications and additions per second of all threads together, in a loop that stays in registers."""
    if backend.recording:
        raise OpError("a measurement cannot be recorded")
    args = abi.PeakArgs(iterations, 0, 0, kind, 0)
    backend.run("peak", args)
    return float(args.operations / args.seconds)


def best_read_bandwidth(backend: Backend, buffer: Array, seconds: float = 0.4) -> float:
    """The best bandwidth of single reads of the buffer, repeated for `seconds`: other programs can only slow them."""
    end, best = time.monotonic() + seconds, read_bandwidth(backend, buffer)
    while time.monotonic() < end:
        best = max(best, read_bandwidth(backend, buffer))
    return best


def best_peak(backend: Backend, kind: PeakKind, seconds: float = 0.3) -> float:
    """The best peak of short bursts, repeated for `seconds`."""
    end, iterations, best = time.monotonic() + seconds, 100, 0.0
    while time.monotonic() < end:
        start = time.monotonic()
        best = max(best, peak(backend, kind, iterations))
        if time.monotonic() - start < BURST_SECONDS:
            iterations *= 2
    return best
