import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend, KvForm, OpError, empty_kv_cache, kv_copy, kv_write
from tests.ops.kv_scenes import Shape, new_cache
from tests.oracle import kv as oracle

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
forms = st.sampled_from(list(KvForm))
dims = st.sampled_from([16, 48, 64, 80, 128, 576])


@quick
@given(
    form=forms, head_dim=dims, value_dim=dims, kv_heads=st.integers(1, 3), block_size=st.sampled_from([16, 32, 64]),
    rows=st.integers(0, 40), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_write_equals_oracle(
    backends: list[Backend],
    form: KvForm,
    head_dim: int,
    value_dim: int,
    kv_heads: int,
    block_size: int,
    rows: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    shape = Shape(kv_heads, kv_heads, head_dim, value_dim, block_size, form)
    num_blocks = 5
    slots = rng.permutation(num_blocks * block_size)[:rows].astype(np.int64)
    slots[rng.random(len(slots)) < 0.1] = -1
    wide = rng.standard_normal((len(slots), kv_heads, head_dim + value_dim)).astype(np.float32)
    wide *= 10.0 ** rng.integers(-12, 12, (len(slots), kv_heads, 1))
    wide[rng.random(wide.shape[:2]) < 0.1] = 0
    keys, values = np.ascontiguousarray(wide[..., :head_dim]), np.ascontiguousarray(wide[..., head_dim:])
    want = new_cache(backends[0], shape, num_blocks)
    oracle.kv_write(want, keys, values, slots)
    for backend in backends:
        got = new_cache(backend, shape, num_blocks)
        kv_write(backend, got, keys, values, slots)
        assert np.array_equal(got.data, want.data)


@pytest.mark.parametrize("form", list(KvForm))
def test_rows_may_be_part_of_a_wider_array(backends: list[Backend], form: KvForm) -> None:
    """Keys and values may be parts of the output of a fused projection."""
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((5, 3 * 32)).astype(np.float32)
    keys, values = (wide[:, at : at + 32].reshape(5, 1, 32) for at in (32, 64))
    assert not keys.flags.c_contiguous
    got, want = (new_cache(backends[0], Shape(1, 1, 32, 32, 16, form), 1) for _ in range(2))
    kv_write(backends[0], got, keys, values, np.arange(5))
    kv_write(backends[0], want, keys.copy(), values.copy(), np.arange(5))
    assert np.array_equal(got.data, want.data)


@quick
@given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6), form=forms)
def test_copy_is_in_order(backends: list[Backend], pairs: list[tuple[int, int]], form: KvForm) -> None:
    rng = np.random.default_rng(len(pairs))
    shape = Shape(3, 3, 32, 16, 32, form)
    before = rng.integers(0, 256, new_cache(backends[0], shape, 6).data.shape).astype(np.uint8)
    order = np.array(pairs, np.int64).reshape(-1, 2)
    want = new_cache(backends[0], shape, 6)
    want.data[...] = before
    oracle.kv_copy(want, order)
    for backend in backends:
        got = new_cache(backend, shape, 6)
        got.data[...] = before
        kv_copy(backend, got, order)
        assert np.array_equal(got.data, want.data)


@pytest.mark.parametrize(
    ("head_dim", "block_size", "value_dim"), [(20, 16, 16), (592, 16, 16), (64, 24, 64), (64, 0, 64)]
)
def test_shapes_that_cannot_be(backends: list[Backend], head_dim: int, block_size: int, value_dim: int) -> None:
    with pytest.raises(ValueError, match="no KV cache"):
        empty_kv_cache(backends[0], 2, block_size, 1, head_dim, value_dim)


def test_slots_and_blocks_outside_are_refused(backends: list[Backend]) -> None:
    cache = new_cache(backends[0], Shape(1, 1, 16, 16, 16, KvForm.ONE_LIMB), 2)
    row = np.ones((1, 1, 16), np.float32)
    for slot in (32, 10**15):
        with pytest.raises(OpError, match="outside its range"):
            kv_write(backends[0], cache, row, row, np.array([slot]))
    for pair in ([0, 2], [-1, 0]):
        with pytest.raises(OpError, match="outside its range"):
            kv_copy(backends[0], cache, np.array([pair]))
    assert (cache.data == 0xFF).all()
