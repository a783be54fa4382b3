import gc
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.ops import Arena


@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=20))
def test_arrays_of_an_arena_are_apart_and_aligned(sizes: list[int]) -> None:
    arena = Arena(chunk_bytes=4096)
    arrays = [arena.empty(size) for size in sizes]
    for number, array in enumerate(arrays):
        assert not array.any()
        array[:] = number + 1
    for number, (size, array) in enumerate(zip(sizes, arrays, strict=True)):
        assert array.ctypes.data % 64 == 0
        assert len(array) == size
        assert (array == number + 1).all()


def test_an_array_keeps_its_bytes_after_the_arena() -> None:
    arena = Arena(chunk_bytes=4096)
    gone = weakref.ref(arena)
    array = arena.empty(100)
    array[:] = np.arange(100)
    del arena
    gc.collect()
    assert gone() is None
    assert array.tolist() == list(range(100))
