"""Backends of every variant and several thread counts; a variant that the machine lacks is skipped, saying so."""

import functools

import pytest

from surefoot.ops import Backend

THREADS = (1, 2, 7)  # 7 on a small machine is oversubscribed, on purpose


@functools.cache
def backend(variant: str, threads: int) -> Backend:
    return Backend(variant, threads)


@pytest.fixture
def backends(variant: str) -> list[Backend]:
    """One variant with 1, 2 and 7 threads."""
    return [backend(variant, threads) for threads in THREADS]
