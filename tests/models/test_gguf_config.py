"""The config of a GGUF file that llama.cpp's converter made equals that of the Hugging Face folder it was made of."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from surefoot.models import ModelConfig, read_config
from surefoot.models.shapes import check_shapes
from surefoot.ops import RopeForm, attention_factor, inverse_frequencies
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import converted, tiny


def rotation(rope: RopeForm | None) -> Any:
    """What a RoPE does, however files describe it. How lanes are paired follows from the order of rows in the file."""
    return None if rope is None else [*inverse_frequencies(rope).tolist(), attention_factor(rope)]


def comparable(config: ModelConfig) -> Any:
    ropes = [rotation(layer.rope) for layer in config.layers]
    plain = tuple(replace(layer, rope=None, ffn=layer.ffn or config.ffn) for layer in config.layers)
    return [ropes, asdict(replace(config, layers=plain))]


def alike(a: Any, b: Any) -> bool:
    """Equal, but for the rounding of floats to GGUF's float32."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(np.isclose(a, b, rtol=1e-6, atol=1e-25)) if isinstance(a, float) else bool(a == b)


@pytest.mark.parametrize(("name", "value"), [("gemma3", True), ("gemma4", "all")])
def test_attention_in_both_directions_is_refused(name: str, value: bool | str) -> None:
    config = {**tiny.reference(name).config.to_dict(), "use_bidirectional_attention": value}
    with pytest.raises(ValueError, match="all see each other"):
        read_config(HuggingFaceCheckpoint(config, {}))


@pytest.mark.parametrize("name", converted.NAMES)
def test_config_is_the_same_from_both(name: str) -> None:
    header, folder = converted.stored(name), tiny.checkpoint(name)
    got, want = read_config(header), read_config(folder)  # type: ignore[arg-type]
    context = got.context if name == "hunyuan_v1_dense" else want.context  # which the converter sets to 256 Ki
    assert alike(comparable(got), comparable(replace(want, context=context)))
    check_shapes(got, header.tensors)
    rows = {tensor: shape.shape for tensor, shape in header.tensors.items() if not tensor.startswith("rope_")}
    assert rows == {tensor: folder.tensors[tensor].shape for tensor in rows}
