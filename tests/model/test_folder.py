"""Hugging Face folders: what transformers writes is what is read, and damaged files are refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.weights import HuggingFaceCheckpoint, SafetensorsError
from surefoot.weights.safetensors import read_safetensors
from tests.model import tiny


@pytest.mark.parametrize("name", ["llama", "llama3", "qwen3_moe", "deepseek_v2"])
@pytest.mark.parametrize("shard", ["100MB", "200KB"])
def test_folder_equals_memory(tmp_path: Path, name: str, shard: str) -> None:
    """Among them experts that lie one by one in the files and together in memory."""
    tiny.reference(name).save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "200KB")
    got, want = HuggingFaceCheckpoint.open(tmp_path), tiny.checkpoint(name)
    assert got.tensors.keys() == want.tensors.keys()
    for tensor in want.tensors:
        assert got.tensors[tensor].shape == want.tensors[tensor].shape == got.floats(tensor).shape
        assert np.array_equal(got.floats(tensor), want.floats(tensor))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(tmp_path: Path, dtype: str) -> None:
    values = tiny.torch.randn(5, 7).to(getattr(tiny.torch, dtype))
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file({"x": values}, tmp_path / "x.safetensors")
    assert np.array_equal(read_safetensors(tmp_path / "x.safetensors")["x"].floats(), values.float().numpy())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 400), byte=st.integers(0, 255), keep=st.floats(0, 1))
def test_damaged_files_are_refused_or_read_within_bounds(tmp_path: Path, at: int, byte: int, keep: float) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"a": tiny.torch.zeros(3, 5), "b": tiny.torch.ones(4)}, path)
    data = bytearray(path.read_bytes())
    data[min(at, len(data) - 1)] = byte
    path.write_bytes(data[: int(len(data) * keep)])
    try:
        tensors = read_safetensors(path)
    except SafetensorsError:
        return
    assert sum(tensor.array().nbytes for tensor in tensors.values()) <= 2 * len(data)
