"""Models at published shapes: their headers are configs of their families, and a small one runs."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shapes.random_gguf import SCALES, TensorMaker, make_random_gguf, published_header, stored_shape
from surefoot import LLM, SamplingParams
from surefoot.api.opening import open_model
from surefoot.models import read_config
from surefoot.models.outline import OutlineCheckpoint
from surefoot.models.shapes import check_shapes
from surefoot.plan.shapes import ShapeHeader, known_shapes, make_header
from surefoot.plan.subject import plan_model, size_model
from surefoot.weights.metadata import check_gguf
from tests.bench.reports import report_of


@pytest.mark.parametrize(
    ("name", "billions", "active", "gigabytes"),
    [
        ("lfm2-1.2b", 1.17, 1.17, 0.72),
        ("qwen3.5-2b", 1.88, 1.88, 1.31),
        ("qwen3-30b-a3b", 30.5, 3.3, 17.5),
        ("gpt-oss-20b", 20.9, 3.6, 12.1),
        ("gemma-4-26b-a4b", 25.2, 3.8, 14.6),
    ],
)
def test_shapes_are_the_published_ones(name: str, billions: float, active: float, gigabytes: float) -> None:
    header = published_header(name)
    check_gguf(header.metadata)
    config = read_config(OutlineCheckpoint(header))
    check_shapes(config, header.tensors)
    share = config.moe.router.top_k / known_shapes()[name].experts if config.moe is not None else 1
    counts = {key: math.prod(tensor.shape) for key, tensor in header.tensors.items()}
    chosen = sum(count * (share if "_exps.weight" in key else 1) for key, count in counts.items())
    assert sum(counts.values()) / 1e9 == pytest.approx(billions, rel=0.01)
    assert chosen / 1e9 == pytest.approx(active, abs=0.7), "embeddings are counted by some and not by others"
    assert sum(tensor.nbytes for tensor in header.tensors.values()) / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize("name", known_shapes())
def test_every_shape_can_be_written(name: str) -> None:
    header = published_header(name, layers=6)
    check_gguf(header.metadata)
    types = {tensor.type.name for tensor in header.tensors.values()}
    assert types <= {"F32", *SCALES}


def test_snapshots_of_states_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    path = make_random_gguf(small("qwen3.5-2b"), tmp_path, lambda line: None)
    report = report_of("batching", str(path), seconds=8, wanted={"snapshots_share"})
    assert math.isfinite(report["figures"]["snapshots_share"])


SMALLER: dict[str, dict[str, int]] = {
    "qwen3-30b-a3b": {"ffn": 64, "experts": 16, "expert_ffn": 32},
    "gpt-oss-20b": {"ffn": 32, "experts": 16, "expert_ffn": 32},
    "gemma-4-26b-a4b": {"ffn": 64, "experts": 16, "expert_ffn": 32},
    "lfm2-1.2b": {"ffn": 192, "heads": 4, "kv_heads": 2},
    "qwen3.5-2b": {"ffn": 192, "heads": 2, "head_dim": 64, "delta_heads": 4, "delta_lanes": 16},
}


def small(name: str) -> ShapeHeader:
    """Narrower and shorter, with every kind of tensor."""
    shape = replace(known_shapes()[name], layers=6, width=64, vocab=512, **SMALLER[name])
    return replace(make_header(shape, "mxfp4" if name.startswith("gpt") else "q4_0_l"), name=name)


@pytest.mark.parametrize("name", SMALLER)
def test_small_files_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    path = make_random_gguf(small(name), tmp_path, lambda line: None)
    written = path.read_bytes()
    (other := tmp_path / "again").mkdir()
    assert make_random_gguf(small(name), other, lambda line: None).read_bytes() == written
    planned, named = plan_model(open_model(path)), size_model(path.stem, small(name))
    for fact in ("work", "weight_bytes", "kv_bytes", "file_bytes"):
        assert getattr(planned, fact) == getattr(named, fact), fact
    llm = LLM(path, threads=2, max_context=128)
    (output,) = llm.generate([300, 301], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    assert output.outputs[0].finish_reason == "length"


def test_neighbouring_experts_differ() -> None:
    make, tensors = TensorMaker(), published_header("qwen3-30b-a3b", 1).tensors
    up = replace(tensors["blk.0.ffn_up_exps.weight"], shape=(4, 768, 2048), nbytes=4 * 768 * 1152)
    experts = make(up)
    assert experts.shape == stored_shape(up) == (4, 768, 1152)
    assert not np.array_equal(experts[0], experts[1])
    weights = make(replace(tensors["output.weight"], shape=(64, 2048), nbytes=64 * 2176))
    assert not np.array_equal(weights[0], weights[1])
