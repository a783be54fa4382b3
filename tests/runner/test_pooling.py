"""A prompt's vector does not show how its states were chunked."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import Pooling, Request, SamplingParams
from surefoot.ops.arrays import F32
from surefoot.runner.results import make_pool
from tests.runner.pooling import CUTS, LENGTH, WIDTH

STATES: F32 = np.random.default_rng(7).standard_normal((LENGTH, WIDTH), dtype=np.float32)


def vector(pooling: Pooling, cuts: list[int], retried: frozenset[int] = frozenset()) -> F32:
    """retried: numbers of chunks that are computed twice, as after a step that failed."""
    pool = make_pool(Request("a", tuple(range(LENGTH)), SamplingParams(), pooling=pooling))
    assert pool is not None
    for number, (start, end) in enumerate(pairwise(cuts)):
        wanted = pool.wanted(start, end - start)
        for _ in range(2 if number in retried else 1):
            if wanted:
                pool.add(wanted.start, STATES[wanted.start : wanted.stop])
    return pool.vector()


@given(CUTS, st.frozensets(st.integers(0, LENGTH)))
def test_chunks_and_retries_do_not_show(cuts: list[int], retried: frozenset[int]) -> None:
    for pooling in (Pooling.MEAN, Pooling.FIRST, Pooling.LAST):
        assert np.array_equal(vector(pooling, cuts, retried), vector(pooling, [0, LENGTH]))


def test_what_the_vectors_are() -> None:
    in_doubles = np.zeros(WIDTH)
    for row in STATES:
        in_doubles += row
    assert np.array_equal(vector(Pooling.MEAN, [0, LENGTH]), (in_doubles / LENGTH).astype(np.float32))
    assert np.array_equal(vector(Pooling.FIRST, [0, LENGTH]), STATES[0])
    assert np.array_equal(vector(Pooling.LAST, [0, LENGTH]), STATES[-1])


def test_a_request_for_tokens_has_no_pool() -> None:
    assert make_pool(Request("a", (1, 2), SamplingParams())) is None
