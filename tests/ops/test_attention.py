import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend, Chunks, KvCache, KvForm, OpError, attention
from surefoot.ops.arrays import F32
from tests.ops.kv_scenes import (
    Request,
    Shape,
    aligned,
    make_chunks,
    make_requests,
    new_cache,
    run_in_steps,
    write,
)
from tests.oracle import attention as oracle
from tests.oracle import kv as oracle_kv

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
forms = st.sampled_from(list(KvForm))
shapes = st.builds(
    lambda kv_heads, group, head_dim, value_dim, block_size, form: Shape(
        kv_heads * group, kv_heads, head_dim, value_dim or head_dim, block_size, form
    ),
    st.integers(1, 2),
    st.sampled_from([1, 2, 3, 4, 7]),
    st.sampled_from([16, 32, 64, 80, 96, 128, 256]),
    st.sampled_from([None, None, 16, 48]),
    st.sampled_from([16, 32, 64]),
    forms,
)
# Tokens before the chunk, and tokens of the chunk.
spans = st.tuples(st.integers(0, 300), st.one_of(st.just(1), st.integers(1, 5), st.integers(6, 70)))


def bits(x: F32) -> F32:
    return x.view(np.int32)


@quick
@given(
    shape=shapes, spans=st.lists(spans, min_size=1, max_size=4), window=st.sampled_from([0, 0, 1, 40, 150]),
    sight=st.sampled_from(["back", "ahead", "fixed"]), with_sinks=st.booleans(),
    bend=st.sampled_from(["none", "none", "slopes", "slopes", 5.0, 50.0]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_equals_oracle(
    backends: list[Backend],
    shape: Shape,
    spans: list[tuple[int, int]],
    window: int,
    sight: str,
    with_sinks: bool,
    bend: str | float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    spans = [(before, before + count) for before, count in spans]
    requests, num_blocks = make_requests(rng, shape, [end for _, end in spans])
    cache = new_cache(backends[0], shape, num_blocks)
    for request in requests:
        write(backends[0], cache, shape, request, 0, len(request.q))
    q, chunks = make_chunks(requests, spans)
    sinks = aligned(rng.standard_normal(shape.heads) * 4) if with_sinks else None
    scale = shape.head_dim**-0.5
    slopes = aligned(2.0 ** rng.uniform(-8, 0, shape.heads)) if bend == "slopes" else None
    softcap = bend if isinstance(bend, float) else 0.0
    options: Any = {"window": window, "sinks": sinks, "softcap": softcap, "slopes": slopes}
    options |= {"sees_ahead": sight == "ahead", "fixed": sight == "fixed" and window > 0}
    want = oracle.attention(q, cache, chunks, scale, **options)
    for backend in backends:
        assert np.array_equal(bits(attention(backend, q, cache, chunks, scale, **options)), bits(want))


@quick
@given(shape=shapes, cuts=st.sets(st.integers(1, 299), max_size=6), seed=st.integers(0, 2**32 - 1))
def test_how_tokens_arrived_cannot_show(backends: list[Backend], shape: Shape, cuts: set[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    (request,), num_blocks = make_requests(rng, shape, [300])
    want = run_in_steps(backends[0], shape, request, [], num_blocks, 0.125)
    for backend in backends[1:]:
        got = run_in_steps(backend, shape, request, sorted(cuts), num_blocks, 0.125)
        assert np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("form", list(KvForm))
def test_token_by_token(backends: list[Backend], form: KvForm) -> None:
    shape = Shape(8, 2, 64, 64, 16, form)
    (request,), num_blocks = make_requests(np.random.default_rng(7), shape, [300])
    want = run_in_steps(backends[1], shape, request, [], num_blocks, 0.125)
    got = run_in_steps(backends[1], shape, request, list(range(1, 300)), num_blocks, 0.125)
    assert np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("form", list(KvForm))
def test_the_block_size_cannot_show(backends: list[Backend], form: KvForm) -> None:
    outs = []
    for block_size in (16, 32, 64, 128):
        shape = Shape(6, 2, 96, 32, block_size, form)
        requests, num_blocks = make_requests(np.random.default_rng(3), shape, [200])
        outs.append(run_in_steps(backends[0], shape, requests[0], [77], num_blocks, 0.1))
    for out in outs[1:]:
        assert np.array_equal(bits(out), bits(outs[0]))


def test_a_long_context_is_shared_out(backends: list[Backend]) -> None:
    """The context is long enough for a kv head's segments to be split into several tasks."""
    shape = Shape(5, 1, 64, 64, 32, KvForm.KEYS_TWO_LIMBS)
    (request,), num_blocks = make_requests(np.random.default_rng(11), shape, [3000])
    cache = new_cache(backends[0], shape, num_blocks)
    write(backends[0], cache, shape, request, 0, 3000)
    q, chunks = make_chunks([request], [(2998, 3000)])
    slopes = aligned(np.float32([0.5, 0.25, 0.01, 0.0, 0.001]))
    cases: list[dict[str, Any]] = [{}, {"window": 1500}, {"window": 1500, "sees_ahead": True}]
    cases += [{"window": 1600, "fixed": True}, {"slopes": slopes}, {"slopes": slopes, "sees_ahead": True}]
    for options in cases:
        want = oracle.attention(q, cache, chunks, 0.125, **options)
        for backend in backends:
            assert np.array_equal(bits(attention(backend, q, cache, chunks, 0.125, **options)), bits(want))


@pytest.mark.parametrize("form", list(KvForm))
def test_the_largest_heads_and_sums(backends: list[Backend], form: KvForm) -> None:
    """With every limb at its bound, int32 sums reach their maximum."""
    shape = Shape(3, 1, 576, 512, 16, form)
    (request,), num_blocks = make_requests(np.random.default_rng(2), shape, [140])
    signs = np.where(np.arange(140)[:, None, None] % 3, np.float32(1), np.float32(-1))
    for x in (request.q, request.keys, request.values):
        x[...] = signs
    cache = new_cache(backends[0], shape, num_blocks)
    write(backends[0], cache, shape, request, 0, 140)
    q, chunks = make_chunks([request], [(100, 140)])
    want = oracle.attention(q, cache, chunks, 0.001)
    for backend in backends:
        assert np.array_equal(bits(attention(backend, q, cache, chunks, 0.001)), bits(want))


def exact(
    request: Request,
    shape: Shape,
    scale: float,
    window: int,
    sinks: F32 | None,
    softcap: float = 0.0,
    slopes: F32 | None = None,
) -> F32:
    """Attention of a whole request in float64."""
    group = shape.heads // shape.kv_heads
    keys, values = (np.repeat(x.astype(np.float64), group, axis=1) for x in (request.keys, request.values))
    logits = np.einsum("qhd,khd->hqk", request.q.astype(np.float64), keys) * scale
    if softcap:
        logits = softcap * np.tanh(logits / softcap)
    t = np.arange(len(request.q))
    if slopes is not None:
        logits = logits - slopes[:, None, None] * np.abs(t - t[:, None])
    seen = (t <= t[:, None]) & ((t > t[:, None] - window) if window else True)
    logits = np.where(seen, logits, -np.inf)
    sink_logits = (
        np.full((shape.heads, len(t), 1), -np.inf)
        if sinks is None
        else np.broadcast_to(sinks[:, None, None], (shape.heads, len(t), 1))
    )
    whole = np.concatenate([logits, sink_logits], axis=2)
    p = np.exp(whole - whole.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    return np.einsum("hqk,khd->qhd", p[..., :-1], values)


def stored(cache: KvCache, request: Request) -> Request:
    """The request with its keys and values rounded as in the cache."""
    heads = [oracle_kv.read(cache, request.blocks, head) for head in range(cache.kv_heads)]

    def dequantised(limbs: Any, scales: F32) -> Any:
        if limbs.ndim == 2:
            return limbs
        return scales[:, None].astype(np.float64) * (128 * limbs[0] + limbs[1] if len(limbs) == 2 else limbs[0])

    keys = np.stack([dequantised(t.keys, t.key_scales) for t in heads], axis=1)[: len(request.q)]
    values = np.stack([dequantised(t.values, t.value_scales) for t in heads], axis=1)[: len(request.q)]
    return dataclasses.replace(request, keys=keys, values=values)


def noise(form: KvForm, request: Request, scale: float) -> float:
    """Five standard deviations of an output's error from rounding q, omitting the product of low limbs and rounding
    p."""
    q, k, v = (float(np.abs(x).max()) for x in (request.q, request.keys, request.values))
    if form == KvForm.BFLOAT16:
        return 1e-5 * v
    step = q / 16256
    of_q = step / 12**0.5  # times keys of size 1
    left_out = 0.0 if form == KvForm.ONE_LIMB else 37**2 * step * k / 16256  # limbs are even over -64 to 63
    logit = scale * request.q.shape[2] ** 0.5 * (of_q**2 + left_out**2) ** 0.5
    return 5 * v * (logit + 1 / 65535)


@pytest.mark.parametrize("form", list(KvForm))
@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize(
    ("with_sinks", "softcap", "with_slopes"),
    [(False, 0.0, False), (True, 0.0, False), (False, 2.0, False), (True, 0.0, True)],
)
def test_oracle_is_close_to_exact_attention(
    form: KvForm, window: int, with_sinks: bool, softcap: float, with_slopes: bool
) -> None:
    rng = np.random.default_rng(5)
    shape = Shape(4, 2, 64, 48, 16, form)
    (request,), num_blocks = make_requests(rng, shape, [290], spread=False)
    cache = new_cache(Backend("portable", 1), shape, num_blocks)
    write(None, cache, shape, request, 0, 290)
    q, chunks = make_chunks([request], [(0, 290)])
    sinks = aligned(rng.standard_normal(4) * 3) if with_sinks else None
    slopes = aligned(np.float32([0.5, 0.125, 0.03, 0.004])) if with_slopes else None
    got = oracle.attention(q, cache, chunks, 0.125, window=window, sinks=sinks, softcap=softcap, slopes=slopes)
    want = exact(stored(cache, request), shape, 0.125, window, sinks, softcap, slopes)
    assert np.abs(got - want).max() <= noise(form, request, 0.125)


def test_exp2_error() -> None:
    x = np.linspace(-124, 1, 200_001).astype(np.float32)
    error = np.abs(oracle.exp2_bounded(x) / np.exp2(x.astype(np.float64)) - 1)
    assert error.max() < 2.8e-6


def one_chunk(backend: Backend) -> tuple[F32, Chunks, KvCache]:
    shape = Shape(2, 1, 16, 16, 16, KvForm.KEYS_TWO_LIMBS)
    (request,), num_blocks = make_requests(np.random.default_rng(0), shape, [40])
    cache = new_cache(backend, shape, num_blocks)
    write(backend, cache, shape, request, 0, 40)
    return *make_chunks([request], [(30, 40)]), cache


@pytest.mark.parametrize("block", [-1, 6, 2**40])
def test_blocks_outside_are_refused(backends: list[Backend], block: int) -> None:
    q, chunks, cache = one_chunk(backends[0])
    chunks.block_table[0, 1] = block
    with pytest.raises(OpError, match="outside its range"):
        attention(backends[0], q, cache, chunks, 0.25)
    # Block 1 is outside the window of all rows, block 2 is not.
    attention(backends[0], q[-5:], cache, dataclasses.replace(chunks, starts=np.array([0, 5])), 0.25, window=2)


@pytest.mark.parametrize(
    ("starts", "length"),
    [([0, 10], 49), ([0, 10], 9), ([10, 0], 40), ([-1, 3], 40)],
    ids=["long", "short", "back", "minus"],
)
def test_bad_chunks_are_refused(backends: list[Backend], starts: list[int], length: int) -> None:
    q, chunks, cache = one_chunk(backends[0])
    bad = Chunks(np.array(starts), np.array([length]), chunks.block_table)
    with pytest.raises(OpError, match="does not fit"):
        attention(backends[0], q, cache, bad, 0.25)


def test_bad_options_are_refused(backends: list[Backend]) -> None:
    q, chunks, cache = one_chunk(backends[0])
    with pytest.raises(ValueError, match="not -1"):
        attention(backends[0], q, cache, chunks, 0.25, window=-1)
    with pytest.raises(ValueError, match="side by side"):
        attention(backends[0], q, cache, chunks, 0.25, fixed=True)
    both: dict[str, Any] = {"softcap": 1.0, "slopes": aligned(np.ones(2))}
    for options in ({"window": 1 << 41, "sees_ahead": True}, {"softcap": -1.0}, both):
        with pytest.raises(OpError, match="no meaning"):
            attention(backends[0], q, cache, chunks, 0.25, **options)
    with pytest.raises(ValueError, match="q has 10"):
        attention(backends[0], q, cache, dataclasses.replace(chunks, starts=np.array([0, 11])), 0.25)


def test_an_empty_chunk_does_nothing(backends: list[Backend]) -> None:
    q, chunks, cache = one_chunk(backends[0])
    want = attention(backends[0], q, cache, chunks, 0.25)
    table = np.concatenate([chunks.block_table, np.full_like(chunks.block_table, -1), chunks.block_table])
    three = Chunks(np.array([0, 4, 4, 10]), np.array([34, 0, 40]), table)
    assert np.array_equal(bits(attention(backends[0], q, cache, three, 0.25)), bits(want))
