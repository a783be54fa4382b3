"""The predicted time of a step follows bytes and products."""

import math
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from surefoot.ops import WeightFormat
from surefoot.speed.rates import Efficiency, MachineRates, NodeLink, make_curve
from surefoot.speed.step_time import ChunkLoad, PredictedSteps
from surefoot.speed.traffic import AttentionUse, MatrixUse, ModelWork

W8 = WeightFormat(8, 2, 32)
DENSE = MatrixUse(1000, 1000, W8, 2, 1_000_000, count=10)
FLAT = make_curve([(1, 1.0)])


def times(
    *matrices: MatrixUse, window: int = 0, call_s: float = 0.0, read: float = 1e9, peak: float = 1e12
) -> PredictedSteps:
    work = ModelWork(matrices, (), (AttentionUse(window, 1000, 100),), 0, 0)
    kernels = Efficiency({"w8x2a2g32": FLAT}, FLAT, 0.0, call_s, 0.0, 0.0)
    return PredictedSteps(work, MachineRates("portable", 1, 1e9, 1e12, kernels))


def test_one_row_takes_the_time_to_read_the_weights() -> None:
    step = times(DENSE).parts([ChunkLoad(1, 0)], 0)
    assert step.memory == pytest.approx(0.01)
    assert step.total == pytest.approx(0.01, rel=0.01)
    assert step.bound == "memory bandwidth"


def test_many_rows_take_the_time_of_their_products() -> None:
    step = times(DENSE).parts([ChunkLoad(1000, 0)], 0)
    assert step.products == pytest.approx(10 * 1e6 * 8 * 1000 / 1e12)
    assert step.linear == pytest.approx(step.products, rel=0.01)
    assert step.bound == "arithmetic"


def test_experts_are_read_as_far_as_rows_reach_them() -> None:
    experts = MatrixUse(1000, 1000, W8, 2, 1_000_000, num_experts=8, top_k=2)
    reads = [times(experts).parts([ChunkLoad(rows, 0)], 0).memory for rows in (1, 4, 1000)]
    assert reads[0] == pytest.approx(0.002)
    assert 0.002 < reads[1] < 0.008
    assert reads[2] == pytest.approx(0.008)


def test_a_window_bounds_attention() -> None:
    full, near = (times(window=window).seconds([ChunkLoad(1, 8000)], 0) for window in (0, 1000))
    assert full == pytest.approx(8 * near, rel=0.01)


def test_a_prompt_is_the_sum_of_its_chunks() -> None:
    cost = times(DENSE)
    chunks = [ChunkLoad(512, 0), ChunkLoad(488, 512)]
    assert cost.prefill_seconds(1000, 512) == pytest.approx(sum(cost.seconds([chunk], 0) for chunk in chunks))


@given(st.lists(st.tuples(st.integers(1, 512), st.integers(0, 8000)), min_size=2, max_size=8))
def test_another_chunk_never_makes_a_step_shorter(loads: list[tuple[int, int]]) -> None:
    cost, chunks = times(DENSE, call_s=1e-6), [ChunkLoad(*load) for load in loads]
    assert cost.seconds(chunks, 1) >= cost.seconds(chunks[:-1], 1)


def test_the_shape_rises() -> None:
    shape = times(DENSE).shape()
    assert [step.tokens for step in shape] == sorted({step.tokens for step in shape})
    assert all(smaller.ms <= larger.ms for smaller, larger in pairwise(shape))


def test_at_the_row_context_attention_takes_as_long_as_matrices() -> None:
    cost = times(DENSE)
    step = cost.parts([ChunkLoad(256, round(cost.row_context()) - 128)], 0)
    assert step.attention == pytest.approx(step.linear, rel=0.1)
    assert times(DENSE, window=100).row_context() == math.inf


def linked(link: NodeLink) -> PredictedSteps:
    plain = times(DENSE, call_s=1e-6)
    return PredictedSteps(plain.work, replace(plain.rates, link=link))


LOADS = ([ChunkLoad(1, 1000)], [ChunkLoad(1, 1000)] * 8, [ChunkLoad(512, 0)])


@pytest.mark.parametrize("chunks", LOADS, ids=len)
def test_a_free_link_adds_nothing(chunks: list[ChunkLoad]) -> None:
    assert linked(NodeLink(2)).parts(chunks, 1) == times(DENSE, call_s=1e-6).parts(chunks, 1)


@pytest.mark.parametrize("chunks", LOADS, ids=len)
def test_nodes_with_a_free_link_are_as_fast_as_all_of_them(chunks: list[ChunkLoad]) -> None:
    cost = PredictedSteps(times(DENSE).work, replace(times(DENSE).rates, link=NodeLink(4)))
    alone = PredictedSteps(cost.work, cost.rates.of_one_node())
    assert alone.seconds(chunks, 1) == pytest.approx(4 * cost.seconds(chunks, 1))


def test_what_crosses_between_nodes() -> None:
    """Of ten matrices with 1000 columns in two limbs and 1000 outputs, each of two nodes fetches half: of the inputs of
    all, of the outputs of its own half. Each of thirty operations takes four lines."""
    step = linked(NodeLink(2, 1e9, 1e-7)).parts([ChunkLoad(3, 0)], 0)
    assert step.link == pytest.approx(3 * 10 * (2000 + 2000) / 2 / 1e9, rel=0.01)
    assert step.barriers == pytest.approx(30 * 4 * 1e-7)
    assert step.total == pytest.approx(step.linear + step.attention + step.rest + step.link + step.barriers)


def test_keys_and_values_come_over_the_link_while_others_come_from_memory() -> None:
    near, far = (linked(NodeLink(2, read)).parts([ChunkLoad(1, 100_000)], 0) for read in (1e12, 1e8))
    bytes_read = 100 * 100_000
    assert near.link < 0.1 * near.attention
    assert far.link + far.attention == pytest.approx(bytes_read / 4 / 1e8, rel=0.1)
