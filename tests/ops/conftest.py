"""Backends of every variant with several thread counts. Variants that the machine cannot run are skipped."""

import functools

import pytest

from surefoot.ops import Backend

THREADS = (1, 2, 7)  # 7 threads oversubscribe a small machine, on purpose


@functools.cache
def backend(variant: str, threads: int) -> Backend:
    return Backend(variant, threads)


@pytest.fixture
def backends(variant: str) -> list[Backend]:
    """Backends of a variant with 1, 2 and 7 threads."""
    return [backend(variant, threads) for threads in THREADS]
