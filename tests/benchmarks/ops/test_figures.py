"""Figures from synthetic measurements, whose values are known."""

import pytest

from benchmarks.ops.figures import Figures, roughness
from benchmarks.ops.settings import FORMS, FULL, QUICK
from surefoot.bench.harness.figures import Figure, Target
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Case, Label, Measurement, TimedSample
from tests.benchmarks.ops.figures import NEEDED

MODEL = QUICK.headline
BYTES = 100.0
LIMITS = {BANDWIDTH: 1000.0, INT8_PEAK: 10_000.0}


def measurement(
    kind: str, seconds: float, engine: str = "surefoot", nbytes: float = 0, operations: float = 0, **labels: Label
) -> Measurement:
    name = "/".join(map(str, (kind, engine, *labels.values())))
    case = Case(name, kind, lambda: 0.0, 1, nbytes, operations, engine, labels)
    return Measurement(case, tuple(TimedSample(number, seconds, LIMITS) for number in (1, 2, 3)))


def synthetic() -> dict[str, Measurement]:
    """Measurements in which W8 and W4 take 0.2 s per matrix for up to 4 rows, then time proportional to the rows; one
    limb takes half of that."""
    measurements = []
    for rows in QUICK.rows:
        for matrix, (_, k) in MODEL.matrices.items():
            for fmt in QUICK.formats:
                for limbs in FORMS:
                    measurements.append(
                        measurement(
                            "linear", 0.1 * limbs * max(1, rows / 4), nbytes=BYTES, operations=1000.0 * rows * limbs,
                            model=MODEL.name, matrix=matrix, format=fmt, limbs=limbs, rows=rows, k=k,
                        )
                    )  # fmt: skip
            measurements.append(
                measurement(
                    "linear", 0.6 * rows, "torch", model=MODEL.name, matrix=matrix, format="bfloat16", rows=rows, k=k
                )
            )
        for k in {k for _, k in MODEL.matrices.values()}:
            measurements += [measurement("quantise", 0.1, k=k, rows=rows, limbs=limbs) for limbs in FORMS]
    measurements.append(measurement("attention decode", 0.5, nbytes=400, requests=1))
    measurements += [
        measurement("layer", seconds, tokens=2048, part=part) for part, seconds in (("attention", 1), ("rest", 3))
    ]
    for model in QUICK.step_models:
        measurements += [
            measurement("step", s, model=model.name, way=way) for way, s in (("per op", 0.4), ("replayed", 0.1))
        ]
    measurements.append(measurement("call", 0.001, way="replay"))
    return {m.case.name: m for m in measurements}


def figures(measurements: dict[str, Measurement], absent: dict[str, str] | None = None) -> dict[str, Figure]:
    return {figure.name: figure for figure in Figures(measurements, QUICK, absent or {}).compute()}


def test_known_numbers() -> None:
    got = figures(synthetic(), {"llama.cpp": "not here"})
    assert got["w8_row1_of_bandwidth"].value == pytest.approx(BYTES / 1000 / 0.2)
    assert got["w8_rows512_of_peak"].value == pytest.approx(2 * 512 * 1000 / 10_000 / (0.2 * 128))
    assert got["w4_one_limb_rows512_of_peak"].value == pytest.approx(512 * 1000 / 10_000 / (0.1 * 128))
    assert got["smoothness"].value == pytest.approx(1.0)  # 1 and 4 rows take the same time
    assert got["attention_decode_of_bandwidth"].value == pytest.approx(0.4 / 0.5)
    assert got["attention_prefill2k_share"].value == pytest.approx(0.25)
    assert got["torch_bf16_row1_ratio"].value == pytest.approx(0.6 / (0.2 + 0.1))
    assert got["torch_bf16_rows512_one_limb_ratio"].value == pytest.approx(0.6 * 512 / (12.8 + 0.1))
    assert got["call_overhead_share"].value == pytest.approx(0.01)
    assert got["call_overhead_share_per_op"].value == pytest.approx(0.75)


def test_targets() -> None:
    got = figures(synthetic())
    assert got["w8_row1_of_bandwidth"].met is False
    assert got["attention_prefill2k_share"].met is True
    assert got["call_overhead_share_per_op"].met is None
    assert Target(0.85).met_by(0.85)
    assert not Target(1.15, at_least=False).met_by(1.16)


def test_missing_figures_have_a_reason() -> None:
    got = figures(synthetic(), {"torch": "not installed", "llama.cpp": "left out"})
    assert (got["torch_bf16_row1_ratio"].value, got["torch_bf16_row1_ratio"].reason) == (None, "not installed")
    assert got["attention_prefill8k_share"].reason == "not part of this run"
    unmeasured = {name: Measurement(m.case, ()) for name, m in synthetic().items()}
    for figure in figures(unmeasured).values():
        assert figure.value is None
        assert figure.reason
        assert figure.met is None


def test_the_needed_figures_are_always_there() -> None:
    assert figures({}).keys() >= NEEDED


def test_row_counts_and_shapes_of_the_full_run() -> None:
    assert FULL.rows == (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048)
    assert [model.width for model in FULL.models] == [576, 1536, 2048, 4096]
    assert max(model.ffn for model in FULL.models) == 14336


def test_roughness() -> None:
    assert roughness({4: 2.0, 1: 1.0, 8: 1.6}) == 2.0 / 1.6
    assert roughness({1: 1.0}) is None
