"""Programs replayed at shapes that were never recorded."""

import numpy as np
import pytest

from surefoot.ops import Backend, Program, Shape, ShapedProgram, ShapeError, add, softcap
from surefoot.ops.arrays import empty
from tests.ops.conftest import backend as make_backend

COLS = 16


class Sums:
    """Computes y = softcap(a + b) over the first rows of fixed arrays."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.a, self.b, self.y = (empty((32, COLS), np.float32) for _ in range(3))
        rng = np.random.default_rng(0)
        self.a[:], self.b[:] = rng.standard_normal((2, 32, COLS), np.float32)

    def record(self, shape: Shape) -> Program:
        rows, capped = shape
        with self.backend.record() as program:
            add(self.backend, self.a[:rows], self.b[:rows], out=self.y[:rows])
            softcap(self.backend, self.y[:capped], 2.0, out=self.y[:capped])
        return program


@pytest.fixture
def backend(variant: str) -> Backend:
    return make_backend(variant, 2)


def test_every_shape_gives_what_its_own_recording_gives(backend: Backend) -> None:
    sums = Sums(backend)
    shaped = ShapedProgram(backend, sums.record, (32, 32))
    for shape in [(1, 1), (2, 1), (7, 3), (32, 32), (31, 2), (1, 1)]:
        sums.y[:] = -9
        sums.record(shape).run()
        expected = sums.y.copy()
        sums.y[:] = -9
        shaped.run(shape)
        assert sums.y.tobytes() == expected.tobytes()


def test_a_beginning_gives_what_its_own_recording_gives(backend: Backend) -> None:
    sums = Sums(backend)

    def only_added(shape: Shape) -> Program:
        with backend.record() as program:
            add(backend, sums.a[: shape[0]], sums.b[: shape[0]], out=sums.y[: shape[0]])
        return program

    def only_capped(shape: Shape) -> Program:
        with backend.record() as program:
            softcap(backend, sums.y[: shape[0]], 2.0, out=sums.y[: shape[0]])
        return program

    whole = ShapedProgram(backend, sums.record, (32, 32))
    beginning = whole.beginning(only_added, (10, 0))
    for rows in (1, 7, 32, 10):
        sums.y[:] = -9
        beginning.run((rows, 0))
        added = sums.a[:rows] + sums.b[:rows]
        assert sums.y[:rows].tobytes() == added.tobytes()
        assert (sums.y[rows:] == -9).all()
    with pytest.raises(ShapeError):
        whole.beginning(only_capped, (10, 0))
    with pytest.raises(ShapeError):
        whole.beginning(lambda shape: only_added((11, 0)), (10, 0))


def test_what_cannot_be_is_refused(backend: Backend) -> None:
    sums = Sums(backend)

    def own_arrays(shape: Shape) -> Program:
        with backend.record() as program:
            add(backend, sums.a[: shape[0]], sums.b[: shape[0]])
        return program

    def other_operations(shape: Shape) -> Program:
        return sums.record(shape) if shape[0] > 20 else own_arrays(shape)

    def squares(shape: Shape) -> Program:
        rows = min(32, shape[0] ** 2 // 32)
        with backend.record() as program:
            add(backend, sums.a[:rows], sums.b[:rows], out=sums.y[:rows])
        return program

    for record in (own_arrays, other_operations, squares):
        with pytest.raises(ShapeError):
            ShapedProgram(backend, record, (32, 32))
