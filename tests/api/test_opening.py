"""The short name of a model."""

import pytest

from surefoot.api.opening import short_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("models/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"),
        ("owner/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M", "Qwen2.5-Coder-1.5B-Instruct-GGUF"),
        ("owner/SmolLM2-1.7B", "SmolLM2-1.7B"),
        ("owner/SmolLM2-1.7B@v1.0", "SmolLM2-1.7B"),
        ("owner/name/model-q4.gguf", "model-q4"),
        ("folder/Qwen3-0.6B/", "Qwen3-0.6B"),
    ],
)
def test_a_dot_in_a_name_is_kept(model: str, name: str) -> None:
    assert short_name(model) == name
