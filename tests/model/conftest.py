"""Backends for the model tests: the best variant for most, all of them for the contract."""

import functools

import pytest

from surefoot.ops import Backend, VariantError
from surefoot.ops.backend import NEEDS, choose_variant


@functools.cache
def make_backend(variant: str | None, threads: int) -> Backend:
    return Backend(variant, threads)


@pytest.fixture
def backend() -> Backend:
    return make_backend(None, 2)


@pytest.fixture(params=list(NEEDS))
def variant(request: pytest.FixtureRequest) -> str:
    try:
        return choose_variant(request.param)
    except VariantError as lacking:
        pytest.skip(str(lacking))
