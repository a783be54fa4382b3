"""Backends for the model tests: the best variant for most, all of them for the contract."""

import functools

import pytest

from surefoot.ops import Backend


@functools.cache
def make_backend(variant: str | None, threads: int) -> Backend:
    return Backend(variant, threads)


@pytest.fixture
def backend() -> Backend:
    return make_backend(None, 2)
