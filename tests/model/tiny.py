"""Tiny random models of every family, made by transformers, and surefoot's own from the same weights."""

import functools
from typing import Any

import numpy as np
import pytest

from surefoot.formats import W8_GROUPED
from surefoot.models import Model, load
from surefoot.ops import Backend, KvForm, WeightFormat
from surefoot.ops.arrays import F32
from surefoot.runner import Runner, Work
from surefoot.weights.huggingface import HuggingFaceCheckpoint, InMemory

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[reference]'")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -e '.[reference]'"
)

VOCAB = 256
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [1.0 + 2 * i for i in range(8)],
    "original_max_position_embeddings": 256,
}  # fmt: skip
# Name of the test: transformers' configuration class and what differs from COMMON.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama3": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": 24, "head_dim": 32}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma2": ("Gemma2Config", {"sliding_window": 24, "head_dim": 32, "query_pre_attn_scalar": 24, **GEMMA}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 24, "head_dim": 32, "num_hidden_layers": 7, **GEMMA}),
    "phi3": ("Phi3Config", {"sliding_window": 40}),
    "phi3_long": ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 256}),
}


@functools.cache
def reference(name: str) -> Any:
    """transformers' model in float32. Weights far larger than an initialised model's, so that logits differ much."""
    kind, changes = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**COMMON, **changes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "norm" in parameter_name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim == 1:
                parameter.copy_(0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    return model


@functools.cache
def checkpoint(name: str) -> HuggingFaceCheckpoint:
    model = reference(name)
    weights = {key: InMemory(value.detach().numpy()) for key, value in model.state_dict().items()}
    return HuggingFaceCheckpoint(model.config.to_dict(), weights)


@functools.cache
def tokens(length: int = 100) -> list[int]:
    return [int(token) for token in np.random.default_rng(7).integers(0, VOCAB, length)]


def reference_logits(name: str) -> F32:
    with torch.no_grad():
        logits: F32 = reference(name)(torch.tensor([tokens()])).logits[0].numpy()
    return logits


def make_model(backend: Backend, name: str, fmt: WeightFormat | None = W8_GROUPED) -> Model:
    return load(backend, checkpoint(name), fmt)


def make_runner(backend: Backend, model: Model, form: KvForm = KvForm.KEYS_TWO_LIMBS, record: bool = True) -> Runner:
    return Runner(backend, model, num_tokens=512, max_requests=4, max_chunk=128, kv_form=form, record=record)


def all_logits(runner: Runner, given: list[int], lengths: list[int]) -> F32:
    """Logits of every token, the prompt taken in chunks of these lengths."""
    request, start, logits = runner.open(len(given)), 0, []
    for length in lengths:
        logits.append(runner.execute([Work(request, given[start : start + length], length)]).copy())
        start += length
    runner.close(request)
    assert start == len(given)
    return np.concatenate(logits)
