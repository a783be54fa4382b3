import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import (
    Backend,
    Groups,
    IntegerWeights,
    OpError,
    PackedWeights,
    Router,
    Scoring,
    WeightFormat,
    combine,
    group_by_expert,
    linear_experts,
    pack,
    quantise,
    route,
)
from tests.oracle import experts as oracle

quick = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def routers(draw: st.DrawFn) -> tuple[int, Router]:
    """A number of experts, and a routing rule."""
    count = draw(st.sampled_from([1, 2, 3, 8]))
    size = draw(st.integers(1, 140 // count))
    groups = Groups(count, draw(st.integers(1, count)), draw(st.integers(1, min(size, 2))))
    top_k = draw(st.integers(1, min(groups.kept * size, 20)))
    scale = draw(st.sampled_from([1.0, 2.5]))
    return count * size, Router(top_k, draw(st.sampled_from(Scoring)), draw(st.booleans()), scale, groups)


@quick
@given(
    case=routers(),
    rows=st.integers(1, 40),
    levels=st.sampled_from([0, 3, 20]),
    biased=st.booleans(),
    scaled=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_route_equals_oracle(
    backends: list[Backend], case: tuple[int, Router], rows: int, levels: int, biased: bool, scaled: bool, seed: int
) -> None:
    experts, router = case
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((rows, experts)) * 10.0 ** rng.integers(-2, 3, (rows, 1))).astype(np.float32)
    if levels:  # few distinct values: many ties, such as 0 and -0
        logits = np.round(logits * levels) / np.float32(levels)
    bias = rng.choice([-0.5, -0.0, 0.0, 0.25], experts).astype(np.float32) if biased else None
    scales = rng.random(experts, np.float32) if scaled else None
    want = oracle.route(logits, router, bias, scales)
    for backend in backends:
        got = route(backend, logits, router, bias, scales)
        assert np.array_equal(got.ids, want.ids)
        assert np.array_equal(got.weights.view(np.int32), want.weights.view(np.int32))


def test_route_is_what_it_says(backends: list[Backend]) -> None:
    logits = np.array([[1, 3, 3, -2]], np.float32)
    everything = np.exp(logits) / np.exp(logits).sum()
    got = route(backends[0], logits, Router(3))
    assert got.ids.tolist() == [[1, 2, 0]]
    np.testing.assert_allclose(got.weights[0], everything[0, [1, 2, 0]], rtol=1e-6)
    got = route(backends[0], logits, Router(2, Scoring.SOFTMAX_CHOSEN, scale=2.0))
    assert got.weights.tolist() == [[1, 1]]
    bias = np.array([0, -1, 0, 1], np.float32)  # moves expert 3 to the top, expert 1 to the bottom
    got = route(backends[0], logits, Router(2, Scoring.SIGMOID, normalise=True), bias)
    assert got.ids.tolist() == [[3, 2]]
    sigmoid = 1 / (1 + np.exp([2.0, -3.0]))
    np.testing.assert_allclose(got.weights[0], sigmoid / sigmoid.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("best", "row", "groups"),
    [
        (1, [0, 5, 4, 4, 1, 2], [[0, 1], [2, 3]]),  # a group is as good as its best expert
        (2, [0, 5, 4, 4, 1, 2], [[2, 3], [0, 1]]),  # or as its two best
        (1, [3, 0, 1, 3, 3, 3], [[0, 1], [2, 3]]),  # ties go to the lower group, whatever is below
        (2, [1, 3, 4, 0, 3, 1], [[0, 1], [2, 3]]),
    ],
)
def test_experts_are_chosen_among_the_best_groups(
    backends: list[Backend], best: int, row: list[float], groups: list[list[int]]
) -> None:
    # By score + bias, which is this row: all scores are 1/2.
    logits, bias = np.zeros((1, 6), np.float32), np.array(row, np.float32)
    for backend in backends:
        for kept in (1, 2):
            router = Router(2, Scoring.SIGMOID, groups=Groups(3, kept, best))
            got = route(backend, logits, router, bias)
            allowed = sorted(expert for group in groups[:kept] for expert in group)
            assert got.ids[0].tolist() == sorted(allowed, key=lambda expert: -row[expert])[:2]
            assert got.weights.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    "router",
    [
        Router(5),
        Router(1, groups=Groups(3)),
        Router(1, groups=Groups(2, 3)),
        Router(1, groups=Groups(2, 0)),
        Router(3, groups=Groups(2, 1)),
        Router(1, groups=Groups(4, 1, best=2)),
        Router(1, groups=Groups(2, 1, best=3)),
    ],
)
def test_route_refuses_more_than_there_are(backends: list[Backend], router: Router) -> None:
    with pytest.raises(OpError, match="route"):
        route(backends[0], np.zeros((1, 4), np.float32), router)


@quick
@given(rows=st.integers(0, 30), k=st.integers(1, 5), experts=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_group_by_expert(backends: list[Backend], rows: int, k: int, experts: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, experts, (rows, k))
    grouped = oracle.group_by_expert(ids, experts)
    expected = [(row, slot) for e in range(experts) for row in range(rows) for slot in range(k) if ids[row, slot] == e]
    assert grouped.rows.tolist() == [row for row, _ in expected]
    assert [int(grouped.places[pair]) for pair in expected] == list(range(rows * k))
    owned = [ids[row, slot] for row, slot in expected]
    assert [np.searchsorted(owned, e) for e in range(experts)] + [rows * k] == grouped.starts.tolist()
    for backend in backends:
        got = group_by_expert(backend, ids, experts)
        assert np.array_equal(got.rows, grouped.rows)
        assert np.array_equal(got.starts, grouped.starts)
        assert np.array_equal(got.places, grouped.places)


@pytest.mark.parametrize("stranger", [-1, 4])
def test_group_by_expert_refuses_strangers(backends: list[Backend], stranger: int) -> None:
    with pytest.raises(OpError, match="outside"):
        group_by_expert(backends[0], np.array([[0, stranger]]), 4)


@quick
@given(
    rows=st.integers(1, 20),
    k=st.integers(1, 9),
    cols=st.integers(1, 150),
    with_residual=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_combine_equals_oracle(
    backends: list[Backend], rows: int, k: int, cols: int, with_residual: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows * k, cols)) * 10.0 ** rng.integers(-30, 6, (rows * k, 1))).astype(np.float32)
    places, weights = rng.permutation(rows * k).reshape(rows, k), rng.random((rows, k), np.float32)
    residual = rng.standard_normal((rows, cols)).astype(np.float32) if with_residual else None
    want = oracle.combine(x, places, weights, residual)
    for backend in backends:
        got = combine(backend, x, places, weights, residual)
        assert np.array_equal(got.view(np.int32), want.view(np.int32))


def test_combine_refuses_rows_outside(backends: list[Backend]) -> None:
    x, weights = np.zeros((3, 4), np.float32), np.ones((1, 2), np.float32)
    with pytest.raises(OpError, match="outside"):
        combine(backends[0], x, np.array([[0, 3]]), weights)


def mixture(backend: Backend, x: np.ndarray, logits: np.ndarray, experts: list[PackedWeights]) -> np.ndarray:
    """A layer with a matrix per expert and two experts per row, whose outputs are added to x."""
    routes = route(backend, logits, Router(2, normalise=True))
    grouped = group_by_expert(backend, routes.ids, len(experts))
    y = linear_experts(backend, quantise(backend, x[grouped.rows]), experts, grouped.starts)
    return combine(backend, y, grouped.places, routes.weights, x)


def test_a_row_among_experts_does_not_see_its_company(backends: list[Backend]) -> None:
    rng = np.random.default_rng(8)
    rows, cols, num_experts = 37, 64, 5
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    logits = rng.standard_normal((rows, num_experts)).astype(np.float32)
    codes = rng.integers(-127, 128, (num_experts, cols, cols), np.int8)
    scales = rng.random((num_experts, cols), np.float32)
    experts = [pack(backends[0], IntegerWeights(WeightFormat(8, 1), codes[e], scales[e])) for e in range(num_experts)]
    together = mixture(backends[1], x, logits, experts)
    for r in range(rows):
        alone = mixture(backends[0], x[r : r + 1], logits[r : r + 1], experts)
        assert alone.tobytes() == together[r].tobytes()
    for r in range(rows):  # equals the definition of the layer
        chosen = np.argsort(-logits[r])[:2]
        weights = np.exp(logits[r, chosen]) / np.exp(logits[r, chosen]).sum()
        outputs = (codes[chosen] * scales[chosen][:, :, None]) @ x[r]
        np.testing.assert_allclose(together[r], x[r] + weights @ outputs, rtol=0, atol=0.3)
