"""Hugging Face folders: what transformers writes is what is read."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.models import read_config
from surefoot.weights import HuggingFaceCheckpoint
from surefoot.weights.safetensors import read_safetensors
from tests.models import tiny
from tests.models.in_memory import InMemory


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


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_text_part_of_a_multimodal_model(prefix: str) -> None:
    """Names of mistral3's folders, as transformers writes them now and as it wrote them before."""
    model, want = tiny.reference("ministral3"), tiny.checkpoint("ministral3")
    head = "lm_head" if prefix.startswith("model.") else "language_model.lm_head"
    weights = {
        name.replace("lm_head", head) if "lm_head" in name else name.replace("model.", prefix, 1): tensor
        for name, tensor in model.state_dict().items()
    }
    stored = {name: InMemory(tensor.numpy()) for name, tensor in weights.items()}
    stored["model.vision_tower.norm.weight"] = InMemory(np.ones(4, np.float32))
    got = HuggingFaceCheckpoint({"model_type": "mistral3", "text_config": model.config.to_dict()}, stored)
    assert read_config(got) == read_config(want)
    assert got.tensors.keys() == want.tensors.keys()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(tmp_path: Path, dtype: str) -> None:
    values = tiny.torch.randn(5, 7).to(getattr(tiny.torch, dtype))
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file({"x": values}, tmp_path / "x.safetensors")
    assert np.array_equal(read_safetensors(tmp_path / "x.safetensors")["x"].floats(), values.float().numpy())
