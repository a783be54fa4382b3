"""Models at published shapes: their headers are configs of their families, and a small one runs."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM, SamplingParams
from surefoot.bench.model.published_shapes import PUBLISHED_SHAPES, PublishedShape, TensorSpec
from surefoot.bench.model.random_gguf import TensorMaker, make_random_gguf, stored_bytes, stored_shape
from surefoot.models import read_config
from surefoot.models.shapes import check_shapes
from surefoot.ops.arrays import F32
from surefoot.weights.metadata import check_gguf
from tests.bench.reports import report_of


@dataclass(frozen=True)
class Header:
    """The file's header as a checkpoint."""

    shape: PublishedShape

    @property
    def metadata(self) -> dict[str, Any]:
        own = {f"{self.shape.architecture}.{key}": value for key, value in self.shape.metadata.items()}
        arrays = {key: np.array(value) for key, value in own.items() if isinstance(value, list)}
        return {"general.architecture": self.shape.architecture, **own, **arrays}

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        return {tensor.name: tensor for tensor in self.shape.tensors}

    def floats(self, name: str) -> F32:
        return np.ones(self.tensors[name].shape, np.float32)


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
    header = Header(PUBLISHED_SHAPES[name]())
    check_gguf(header.metadata)
    config = read_config(header)  # type: ignore[arg-type]
    check_shapes(config, header.tensors)
    share = config.moe.router.top_k / header.shape.metadata["expert_count"] if config.moe is not None else 1
    counts = {tensor.name: math.prod(tensor.shape) for tensor in header.shape.tensors}
    chosen = sum(count * (share if "_exps.weight" in key else 1) for key, count in counts.items())
    assert sum(counts.values()) / 1e9 == pytest.approx(billions, rel=0.01)
    assert chosen / 1e9 == pytest.approx(active, abs=0.7), "embeddings are counted by some and not by others"
    assert sum(map(stored_bytes, header.shape.tensors)) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_snapshots_of_states_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    path = make_random_gguf(small_hybrid(), tmp_path, lambda line: None)
    report = report_of("model", str(path), seconds=4, wanted={"snapshots_share"})
    assert math.isfinite(report["figures"]["snapshots_share"])


def small_hybrid() -> PublishedShape:
    """Narrower and shorter, with every kind of tensor."""
    shape = PUBLISHED_SHAPES["qwen3.5-2b"](4)
    smaller = {6144: 192, 2048: 64, 512: 64, 4096: 128, 256: 32, 128: 16, 16: 4, shape.vocab_size: 512}
    sizes = {"embedding_length": 64, "feed_forward_length": 192, "attention.head_count": 2}
    sizes |= {"attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 16}
    sizes |= {"ssm.state_size": 16, "ssm.group_count": 4, "ssm.time_step_rank": 4, "ssm.inner_size": 64}
    tensors = [replace(t, shape=tuple(smaller.get(size, size) for size in t.shape)) for t in shape.tensors]
    return replace(shape, vocab_size=512, metadata={**shape.metadata, **sizes}, tensors=tuple(tensors))


def small(name: str) -> PublishedShape:
    """Narrower and shorter, with every kind of tensor."""
    shape = PUBLISHED_SHAPES[name](6)
    sizes = {"width": 2048 if name.startswith("qwen") else 2816, "experts": 128, "vocab": shape.vocab_size}
    smaller = {sizes["width"]: 64, sizes["experts"]: 16, sizes["vocab"]: 512, 6144: 64, 768: 32, 704: 32, 1408: 64}
    smaller |= {2112: 64}

    def cut(tensor: TensorSpec) -> TensorSpec:
        if tensor.name.endswith(("q_norm.weight", "k_norm.weight")):
            return tensor
        is_head = "attn_" in tensor.name and len(tensor.shape) == 2
        if not is_head:
            return replace(tensor, shape=tuple(smaller.get(size, size) for size in tensor.shape))
        rows, columns = tensor.shape
        is_out = "output" in tensor.name
        return replace(tensor, shape=(64, columns) if is_out else (rows, 64))

    keys = ("embedding_length", "feed_forward_length", "expert_count", "expert_feed_forward_length")
    metadata = {key: smaller.get(value, value) if key in keys else value for key, value in shape.metadata.items()}
    return replace(shape, vocab_size=512, metadata=metadata, tensors=tuple(map(cut, shape.tensors)))


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gemma-4-26b-a4b"])
def test_small_files_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    path = make_random_gguf(small(name), tmp_path, lambda line: None)
    written = path.read_bytes()
    (other := tmp_path / "again").mkdir()
    assert make_random_gguf(small(name), other, lambda line: None).read_bytes() == written
    llm = LLM(path, threads=2, max_context=128)
    (output,) = llm.generate([300, 301], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    assert output.outputs[0].finish_reason == "length"


def test_neighbouring_experts_differ() -> None:
    make, tensor = TensorMaker(), TensorSpec("blk.0.ffn_up_exps.weight", (4, 768, 2048), "Q4_0")
    experts = make(tensor)
    assert experts.shape == stored_shape(tensor) == (4, 768, 1152)
    assert not np.array_equal(experts[0], experts[1])
    weights = make(TensorSpec("output.weight", (64, 2048), "Q8_0"))
    assert not np.array_equal(weights[0], weights[1])
