"""Quantisers on small matrices whose inputs have a few large columns, as in real models."""

import functools
from typing import cast

import numpy as np
import pytest

from experiments.compress.rotation import int8_error, rotate
from surefoot.formats.ggml import decode_floats
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32
from surefoot_compress import search
from surefoot_compress.allocate import FormatOption, allocate
from surefoot_compress.assign import DAMPING, HessianFactor, gptq, nearest, output_error
from surefoot_compress.errors import CompressError
from surefoot_compress.format_names import fallback_format, parse_format
from surefoot_compress.ggml_grids import GGML
from surefoot_compress.grids import Format, IntFormat
from surefoot_compress.levels import FP4, NF4, Levels
from surefoot_compress.moments import Moments
from surefoot_compress.scaling import smoothquant
from surefoot_compress.sensitivity import losses

ROWS, COLUMNS, INPUTS = 16, 256, 1024
FORMATS = ["int2-g32", "int3-g64", "int4-g32", "int4-g32-zero", "int4", "int5-g32", "int8", "nf4", "fp4-g64", *GGML]


@functools.cache
def matrix() -> tuple[F32, F32]:
    """Weights, and second moments of correlated inputs."""
    rng = np.random.default_rng(3)
    mixed = rng.standard_normal((COLUMNS, COLUMNS)) * np.exp(rng.standard_normal(COLUMNS)) / np.sqrt(COLUMNS)
    inputs = (rng.standard_normal((INPUTS, COLUMNS)) @ mixed).astype(np.float32)
    return 0.05 * rng.standard_normal((ROWS, COLUMNS)).astype(np.float32), inputs.T @ inputs


def error(fmt: Format, searched: bool, by_gptq: bool) -> float:
    weights, moments = matrix()
    grid = fmt.fit(weights, np.diag(moments) if searched else None)
    codes = gptq(grid, weights, HessianFactor.of(moments, INPUTS)) if by_gptq else nearest(grid, weights)
    return output_error(weights, grid.floats(codes), moments) / output_error(weights, 0 * weights, moments)


@pytest.mark.parametrize("name", FORMATS)
def test_gptq_loses_less_than_rounding(name: str) -> None:
    fmt = parse_format(name)
    plain, searched, by_gptq = error(fmt, False, False), error(fmt, True, False), error(fmt, True, True)
    assert searched <= plain
    assert by_gptq < 0.6 * searched


def test_more_bits_lose_less() -> None:
    errors = [error(parse_format(f"int{bits}-g32"), True, True) for bits in (2, 3, 4, 5, 6, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5 < 1e-4 < errors[2]


def test_gptq_without_correlation_is_rounding() -> None:
    """Without correlation between columns, there is no error to propagate."""
    weights, _ = matrix()
    grid = parse_format("int4-g32").fit(weights, None)
    hessian = HessianFactor.of(np.eye(COLUMNS, dtype=np.float32), INPUTS)
    assert (gptq(grid, weights, hessian) == nearest(grid, weights)).all()


def test_few_inputs_are_damped_more() -> None:
    """On other inputs, GPTQ from few inputs is no worse than rounding, and from many far better."""
    weights, moments = matrix()
    mixed = np.linalg.cholesky(moments / INPUTS + 1e-6 * np.eye(COLUMNS))
    rng = np.random.default_rng(9)

    def lost(num_rows: int) -> float:
        inputs = (rng.standard_normal((num_rows, COLUMNS)) @ mixed.T).astype(np.float32)
        seen = inputs.T @ inputs
        grid = parse_format("int4-g32").fit(weights, np.diag(moments))
        plain = output_error(weights, grid.floats(nearest(grid, weights)), moments)
        codes = gptq(grid, weights, HessianFactor.of(seen, num_rows))
        return output_error(weights, grid.floats(codes), moments) / plain

    assert lost(COLUMNS // 2) < 1
    assert lost(16 * COLUMNS) < 0.5 * lost(COLUMNS // 2)


def test_columns_without_input() -> None:
    weights, moments = matrix()
    moments = moments.copy()
    moments[7], moments[:, 7] = 0, 0
    grid = parse_format("Q4_K").fit(weights, np.diag(moments) + 1e-8)
    assert np.isfinite(grid.floats(gptq(grid, weights, HessianFactor.of(moments, INPUTS)))).all()


@pytest.mark.parametrize("values", [NF4, FP4, GGML["IQ4_NL"].values, GGML["MXFP4"].values, range(-8, 8)])
def test_the_nearest_level(values: tuple[float, ...]) -> None:
    levels = Levels.of(values)
    borders = (levels.values[1:] + levels.values[:-1]) / 2
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-1.5, 1.5, 20000) * np.abs(levels.values).max(), levels.values]).astype(np.float32)
    expected = np.searchsorted(borders, x)
    assert (levels.index(x) == expected).all()
    assert (levels.nearest(x) == levels.values[expected]).all()
    assert (levels.index(np.float32([-1e30, 1e30])) == [0, len(levels.values) - 1]).all()


def test_gptq_error_propagation() -> None:
    """U'U is the inverse of the damped moments, in the order of columns."""
    _, moments = matrix()
    hessian = HessianFactor.of(moments, INPUTS)
    assert (np.diff(np.diag(moments)[hessian.order]) <= 0).all()
    assert (np.tril(hessian.factor, -1) == 0).all()
    trusted = moments + np.diag(np.diag(moments)) * COLUMNS / INPUTS
    damped = (trusted + DAMPING * np.diag(trusted).mean() * np.eye(COLUMNS))[np.ix_(hessian.order, hessian.order)]
    assert np.abs(hessian.factor.T @ (hessian.factor @ damped) - np.eye(COLUMNS)).max() < 1e-3


@pytest.mark.parametrize("name", ["int4-g32", "int4", "int4-g32-zero", "Q4_1", "IQ4_NL", "MXFP4"])
def test_fitting_a_matrix_in_parts_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, moments = matrix()
    whole = parse_format(name).fit(weights, np.diag(moments))
    monkeypatch.setattr(search, "PART", COLUMNS)
    monkeypatch.setattr(search, "MIN_GROUPS", 1)
    parts = parse_format(name).fit(weights, np.diag(moments))
    assert np.allclose(whole.scales, parts.scales, rtol=1e-6)


@pytest.mark.parametrize("name", list(GGML))
def test_blocks_encode_the_grid(name: str) -> None:
    """Encoded blocks decode to the same floats in our GGUF reader and in the gguf package."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    weights, moments = matrix()
    weights = weights.copy()
    weights[0] = 0
    grid = GGML[name].fit(weights, np.diag(moments))
    codes = nearest(grid, weights)
    raw = GGML[name].encode(grid, codes)
    assert raw.nbytes == GGML[name].nbytes(ROWS, COLUMNS)
    expected = grid.floats(codes)
    assert np.abs(decode_floats(GGML[name].kind, raw) - expected).max() < 1e-11
    theirs = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    assert (theirs == decode_floats(GGML[name].kind, raw)).all()


@pytest.mark.parametrize(
    ("name", "columns", "becomes"), [("Q4_K", 256, "Q4_K"), ("Q4_K", 288, "Q5_0"), ("Q4_K", 172, None)]
)
def test_fallback_formats_of_rows_with_partial_blocks(name: str, columns: int, becomes: str | None) -> None:
    fmt = fallback_format(parse_format(name), columns)
    assert (fmt.name if fmt else None) == becomes


@pytest.mark.parametrize("name", ["Q4_X", "int9", "int4-g", "nf5", ""])
def test_an_unknown_format_is_refused_by_name(name: str) -> None:
    with pytest.raises(CompressError, match="int4-g32"):
        parse_format(name)


# ---- bits by sensitivity ----


def brute(options: dict[str, list[FormatOption]], budget: int) -> float:
    totals = [(0, 0.0)]
    for some in options.values():
        totals = [(b + option.nbytes, loss + option.loss) for b, loss in totals for option in some]
    return min(loss for nbytes, loss in totals if nbytes <= budget)


@pytest.mark.parametrize("seed", range(20))
def test_allocation_is_optimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = {
        f"m{i}": [FormatOption(f"f{j}", int(rng.integers(1, 60)), float(rng.random())) for j in range(4)]
        for i in range(6)
    }
    least = sum(min(option.nbytes for option in some) for some in options.values())
    budget = least + int(rng.integers(0, 120))
    chosen = allocate(options, budget)
    assert chosen.nbytes <= budget
    assert chosen.loss == pytest.approx(brute(options, budget))
    by_name = {name: {option.format: option for option in some} for name, some in options.items()}
    assert chosen.nbytes == sum(by_name[name][fmt].nbytes for name, fmt in chosen.formats.items())


def test_correlated_positions_lose_more() -> None:
    """Errors with the same effect at all positions of a window add up before they are squared; shares of formats do not
    change."""
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((4, 1000, 64)).astype(np.float32)
    alike = np.repeat(rng.standard_normal((4, 1000, 1)).astype(np.float32), 64, axis=-1)
    assert losses([apart, 2 * apart]) == pytest.approx([0.5, 2.0], rel=0.1)
    assert losses([alike, 2 * alike]) == pytest.approx([64 * 0.5, 64 * 2.0], rel=0.1)
    assert losses([np.zeros_like(apart)]) == [0.0]


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(CompressError, match="too few"):
        allocate({"m": [FormatOption("f", 10, 0.0)]}, 9)


# ---- int8 activations ----


def outlier_layer() -> tuple[F32, F32]:
    """A layer with inputs of which one channel in a hundred is fifty times as large, as in large models."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((256, 576)).astype(np.float32)
    x[:, ::100] *= 50
    return x, (rng.standard_normal((64, 576)) / 24).astype(np.float32)


def test_rotation_is_orthogonal() -> None:
    x, weights = outlier_layer()
    assert np.abs(rotate(rotate(x)) - x).max() < 1e-3
    assert np.abs(rotate(x) @ rotate(weights).T - x @ weights.T).max() < 1e-3


def test_smoothing_and_rotation_tame_outliers() -> None:
    """Errors are less than a third of those of plain rounding."""
    x, weights = outlier_layer()
    moments = Moments(x.T @ x / len(x), np.abs(x).max(axis=0), len(x))
    config = cast(ModelConfig, None)  # which heads share lanes matters to attn_output alone
    factors = smoothquant(config, "ffn_gate", [(weights, IntFormat(8, 0))], moments)
    plain = int8_error(x, weights)
    assert int8_error(x / factors, weights * factors) < plain / 3
    assert int8_error(rotate(x), rotate(weights)) < plain / 3
