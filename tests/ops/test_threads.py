"""The number of threads may change between two calls; results do not."""

import os

import numpy as np

from surefoot.ops import ActivationForm, Backend, WeightFormat, linear, pack
from tests.ops.linear import aligned, random_rows, random_weights, same_bits
from tests.oracle import linear as oracle


def test_number_of_threads_changes_between_calls(variant: str) -> None:
    rng = np.random.default_rng(1)
    weights = random_weights(rng, WeightFormat(4, 2, 32), 300, 640)
    x = aligned(random_rows(rng, 70, 640, ActivationForm(2)))
    want = oracle.linear(x, weights)
    backend = Backend(variant, 7)
    packed = pack(backend, weights)
    for num_threads in (*rng.integers(1, 8, 200), 0, 100):  # beyond what there is: as near as possible
        backend.use_threads(int(num_threads))
        assert same_bits(linear(backend, x, packed), want)
    backend.use_threads(1)
    backend.close()  # wakes the threads that sleep


def test_a_forked_child_leaves_the_threads_alone() -> None:
    """They run in the parent only. A child may drop a backend that the parent still uses, also by collecting
    garbage."""
    rng = np.random.default_rng(1)
    weights = random_weights(rng, WeightFormat(4, 2, 32), 300, 640)
    x = aligned(random_rows(rng, 70, 640, ActivationForm(2)))
    backends = [Backend(threads=3) for _ in range(3)]
    packed = pack(backends[0], weights)
    child = os.fork()
    if not child:
        for backend in backends:
            backend.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for backend in backends:
        assert same_bits(linear(backend, x, packed), oracle.linear(x, weights))
        backend.close()
