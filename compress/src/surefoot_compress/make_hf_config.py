"""Makes a Hugging Face config.json for the model in a GGUF file."""

from typing import Any

from surefoot.models import ModelConfig, read_config
from surefoot.ops import RopeForm
from surefoot.ops.rope import FactorScaling, LinearScaling
from surefoot.weights import GgufFile
from surefoot_compress.errors import CompressError

CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def make_hf_config(checkpoint: GgufFile) -> dict[str, Any]:
    config = read_config(checkpoint)
    if config.family not in CLASSES:
        raise CompressError(f"a {config.family} GGUF cannot be written as a Hugging Face folder: choose --output gguf")
    kv, (model_type, architecture) = config.kv(0), CLASSES[config.family]
    values: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "dtype": "float32",
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.ffn,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.heads,
        "num_key_value_heads": kv.heads,
        "head_dim": kv.key_dim,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm.eps,
        "hidden_act": ACTIVATIONS[config.glu.kind],
        "tie_word_embeddings": "output.weight" not in checkpoint.tensors,
        "bos_token_id": _token(checkpoint, "bos"),
        "eos_token_id": _token(checkpoint, "eos"),
    }
    return values | (_gemma(config) if config.family == "gemma3" else _plain(config))


def _token(checkpoint: GgufFile, name: str) -> int | None:
    token = checkpoint.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return None if token is None else int(token)


def _plain(config: ModelConfig) -> dict[str, Any]:
    rope = config.layers[0].rope
    assert rope is not None
    if any(config.windows):
        raise CompressError("attention windows cannot be written as a Hugging Face folder: choose --output gguf")
    return {"rope_theta": rope.theta, "rope_scaling": _scaling(config, rope)}


def _gemma(config: ModelConfig) -> dict[str, Any]:
    kinds = ["sliding_attention" if config.kv(i).window else "full_attention" for i in range(len(config.layers))]
    by_kind = {kind: config.layers[i].rope for i, kind in enumerate(kinds)}
    return {
        "hidden_activation": ACTIVATIONS[config.glu.kind],
        "sliding_window": max(config.windows),
        "layer_types": kinds,
        "query_pre_attn_scalar": round(config.scale**-2),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": form.theta} for kind, form in by_kind.items() if form
        },
    }


def _scaling(config: ModelConfig, rope: RopeForm) -> dict[str, Any] | None:
    if rope.dim != config.kv(0).key_dim:
        raise CompressError("heads that rotate in part cannot be written as a Hugging Face folder: use --output gguf")
    if rope.scaling is None:
        return None
    if isinstance(rope.scaling, LinearScaling):
        return {"rope_type": "linear", "factor": rope.scaling.factor}
    if isinstance(rope.scaling, FactorScaling):
        raise CompressError("the GGUF lists its RoPE factors, which config.json cannot: use the original folder")
    raise CompressError(f"RoPE scaled by {type(rope.scaling).__name__} cannot be written: use the original folder")
