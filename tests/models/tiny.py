"""Tiny random models of every family, made by transformers, and surefoot's own from the same weights."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.formats import W8_GROUPED, round_to
from surefoot.models import Model, load, read_config
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32
from surefoot.ops.weights import dequantise
from surefoot.runner import SessionRunner, Work
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models.in_memory import InMemory

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[reference]'")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -e '.[reference]'"
)
# The installed version's list of models lacks it.
transformers.AutoModelForCausalLM.register(transformers.Mistral4Config, transformers.Mistral4ForCausalLM, exist_ok=True)
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[reference]'")

VOCAB = 256
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 64,
}  # fmt: skip
MOE = {"num_experts_per_tok": 3, "moe_intermediate_size": 64}
DEEPSEEK = {
    "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_key_value_heads": 6,
    "topk_method": "greedy", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
DEEPSEEK_V3 = {**{key: value for key, value in DEEPSEEK.items() if key != "topk_method"}, "n_group": 1, "topk_group": 1}
GROUPS = {"n_routed_experts": 12, "n_group": 3, "topk_group": 2}
INDEXER = {"q_lora_rank": 48, "index_n_heads": 4, "index_head_dim": 128, "index_topk": 600}
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
GLM4_MOE = {
    **MOE, "head_dim": 32, "n_routed_experts": 8, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
    "use_qk_norm": True, "attention_bias": True, "rope_parameters": HALF, "num_mtp_layers": 0,
}  # fmt: skip
ERNIE_MOE = {
    "head_dim": 32, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 64, "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1, "moe_layer_end_index": 2,
}  # fmt: skip
DEEPSEEK_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
    "mscale_all_dim": 0.707, "original_max_position_embeddings": 128,
}  # fmt: skip
PUBLISHED_YARN = {**DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}  # llama.cpp has V3.2 for these alone
GEMMA = {"hidden_activation": "gelu_pytorch_tanh"}
GEMMA3N = {"sliding_window": 24, "head_dim": 32, "hidden_size_per_layer_input": 16, "laurel_rank": 16}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [1.0 + 2 * i for i in range(8)],
    "original_max_position_embeddings": 512,
}  # fmt: skip
LFM2 = {
    "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
    "norm_eps": 1e-5, "block_auto_adjust_ff_dim": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip
LFM2_MOE = {**LFM2, **MOE, "num_experts": 8, "num_dense_layers": 1}
QWEN3_5 = {
    "head_dim": 64, "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 24, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
}  # fmt: skip
GRANITE = {
    "embedding_multiplier": 1.5, "attention_multiplier": 0.1, "residual_multiplier": 0.5, "logits_scaling": 3.0,
}  # fmt: skip
GRANITE_HYBRID = {
    **GRANITE, "layer_types": ["mamba", "attention", "mamba"], "intermediate_size": 64, "shared_intermediate_size": 96,
    "mamba_n_heads": 6, "mamba_d_head": 32, "mamba_d_state": 24, "num_local_experts": 8, "num_experts_per_tok": 3,
}  # fmt: skip
DENSE = {"num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 96}
NEMOTRON = {
    "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"], "head_dim": 32, "n_groups": 2,
    "mamba_num_heads": 6, "mamba_head_dim": 32, "ssm_state_size": 24, "time_step_min": 1e-9,
}  # fmt: skip
NEMOTRON_MOE = {
    **NEMOTRON, "layers_block_type": ["mamba", "attention", "moe"], "n_routed_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
    "routed_scaling_factor": 1.5,
}  # fmt: skip
SQUARE = {"linear_key_head_dim": 32}  # as llama.cpp has them: keys as wide as values
PHI4 = {
    **LONGROPE, "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.1 * i for i in range(6)], "long_factor": [1.0 + 2 * i for i in range(6)],
}  # fmt: skip
YARN_TRUNCATED = {**YARN, "truncate": True}
OLMO3 = {
    "full_attention": YARN_TRUNCATED,
    "sliding_attention": {"rope_type": "default", "rope_theta": YARN["rope_theta"]},
}
LLAMA4 = {
    "num_hidden_layers": 4, "head_dim": 32, "intermediate_size": 64, "intermediate_size_mlp": 160,
    "num_local_experts": 8, "interleave_moe_layer_step": 2,
}  # fmt: skip
MINISTRAL = {**YARN_TRUNCATED, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
MISTRAL4 = {
    **DEEPSEEK_V3, **MOE, "q_lora_rank": 48, "rope_parameters": {**MINISTRAL, "llama_4_scaling_beta": 0.1},
}  # fmt: skip
KIMI = {
    **{key: value for key, value in DEEPSEEK_V3.items() if key not in ("n_routed_experts", "rope_parameters")}, **MOE,
    "num_local_experts": 8, "layer_types": ["linear_attention", "linear_attention", "full_attention"],
    "linear_head_dim": 32, "linear_num_heads": 6,
}  # fmt: skip
ALPHA = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}
POST_NORMED = ("olmo", "exaone", "gemma3n", "gemma4")  # layers norm what they add, with weights as they are
AFTER = re.compile("post_(attention|feedforward|per_layer|laurel)")  # norms of what layers add
# How Gemma 3n mixes streams: a little of each. The router's inputs are divided by the width.
MIXING = {"modality_router": 5.0, "prediction_coefs": 0.1, "correction_coefs": 0.1}
# Name of the test: transformers' configuration class and what differs from COMMON.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama3": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": 24, "head_dim": 32}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma2": ("Gemma2Config", {"sliding_window": 24, "head_dim": 32, "query_pre_attn_scalar": 24, **GEMMA}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 24, "head_dim": 32, "num_hidden_layers": 7, **GEMMA}),
    "qwen3_5": ("Qwen3_5TextConfig", QWEN3_5),
    "qwen3_5_square": ("Qwen3_5TextConfig", {**QWEN3_5, **SQUARE}),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        {
            **QWEN3_5,
            **SQUARE,
            **MOE,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "num_experts": 8,
            "shared_expert_intermediate_size": 96,
        },
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            **QWEN3_5,
            **SQUARE,
            **MOE,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "num_experts": 8,
            "shared_expert_intermediate_size": 96,
        },
    ),
    "qwen3_moe": ("Qwen3MoeConfig", {"head_dim": 32, "num_experts": 8, **MOE, "norm_topk_prob": True}),
    "gpt_oss": (
        "GptOssConfig",
        {"head_dim": 32, "num_local_experts": 6, **MOE, "sliding_window": 24, "rope_parameters": YARN},
    ),
    "deepseek_v2": ("DeepseekV2Config", {**DEEPSEEK, **MOE, "q_lora_rank": None}),
    "deepseek_v2_narrow": (
        "DeepseekV2Config",
        {**DEEPSEEK, **MOE, "q_lora_rank": 48, "rope_parameters": DEEPSEEK_YARN},
    ),
    "deepseek_v2_groups": (
        "DeepseekV2Config",
        {**DEEPSEEK, **MOE, **GROUPS, "q_lora_rank": 48, "topk_method": "group_limited_greedy"},
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        {**DEEPSEEK_V3, **MOE, "q_lora_rank": 48, "rope_parameters": DEEPSEEK_YARN, "num_mtp_layers": 0},
    ),
    "deepseek_v3_groups": (
        "DeepseekV3Config",
        {**DEEPSEEK_V3, **MOE, **GROUPS, "q_lora_rank": 48, "num_mtp_layers": 0},
    ),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", {**DEEPSEEK_V3, **MOE, "q_lora_rank": 48}),
    "deepseek_v32": ("DeepseekV32Config", {**DEEPSEEK_V3, **MOE, **INDEXER, "rope_parameters": PUBLISHED_YARN}),
    "glm_moe_dsa": ("GlmMoeDsaConfig", {**DEEPSEEK_V3, **MOE, **INDEXER, "indexer_types": ["full", "shared", "full"]}),
    "glm4_moe": ("Glm4MoeConfig", GLM4_MOE),
    "glm4_moe_groups": ("Glm4MoeConfig", {**GLM4_MOE, **GROUPS}),
    "minimax_m2": (
        "MiniMaxM2Config",
        {
            "head_dim": 32,
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "intermediate_size": 64,
            "rope_parameters": HALF,
        },
    ),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", ERNIE_MOE),
    "lfm2": ("Lfm2Config", LFM2),
    "lfm2_bias": ("Lfm2Config", {**LFM2, "conv_bias": True, "conv_L_cache": 4}),
    "lfm2_moe": ("Lfm2MoeConfig", LFM2_MOE),
    "lfm2_moe_tied": ("Lfm2MoeConfig", {**LFM2_MOE, "tie_word_embeddings": True}),
    "phi3": ("Phi3Config", {"sliding_window": 40}),
    "phi4_mini": ("Phi3Config", {"rope_parameters": PHI4, "original_max_position_embeddings": 512}),
    "granite": ("GraniteConfig", GRANITE),
    "granitemoehybrid": ("GraniteMoeHybridConfig", GRANITE_HYBRID),
    "granitemoehybrid_dense": ("GraniteMoeHybridConfig", {**GRANITE_HYBRID, **DENSE}),
    "granitemoehybrid_attention": (
        "GraniteMoeHybridConfig",
        {**GRANITE_HYBRID, **DENSE, "layer_types": ["attention"] * 3, "position_embedding_type": "rope"},
    ),
    "nemotron_h": ("NemotronHConfig", NEMOTRON),
    "nemotron_h_moe": ("NemotronHConfig", NEMOTRON_MOE),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 5}),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": ("Olmo3Config", {"num_hidden_layers": 4, "sliding_window": 24, "rope_parameters": OLMO3}),
    "exaone4": ("Exaone4Config", {"num_hidden_layers": 4, "sliding_window": 24, "rope_parameters": LLAMA3}),
    "exaone4_global": ("Exaone4Config", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "ministral3": ("Ministral3Config", {"head_dim": 32, "rope_parameters": MINISTRAL}),
    "ernie4_5": ("Ernie4_5Config", {"head_dim": 32}),
    "seed_oss": ("SeedOssConfig", {"head_dim": 32}),
    "hunyuan_v1_dense": (
        "HunYuanDenseV1Config",
        {"head_dim": 32, "rope_parameters": ALPHA, "max_position_embeddings": 32768},
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1Config",
        {
            "head_dim": 32,
            "num_experts": 8,
            "moe_topk": [3, 3, 3],
            "moe_intermediate_size": [160, 160, 160],
            "num_shared_expert": [1, 1, 1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "gemma3n": (
        "Gemma3nTextConfig",
        {
            **GEMMA3N,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": VOCAB,
            "activation_sparsity_pattern": [0.9, 0.9, 0.0, 0.0, 0.0, 0.0],
        },
    ),
    "gemma3n_small": (
        "Gemma3nTextConfig",
        {
            **GEMMA3N,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "num_kv_shared_layers": 1,
            "vocab_size_per_layer_input": VOCAB - 6,
            "activation_sparsity_pattern": [0.5, 0.5, 0.5],
            "altup_num_inputs": 3,
            "altup_correct_scale": False,
        },
    ),
    "gemma4": (
        "Gemma4TextConfig",
        {
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "sliding_window": 24,
            "head_dim": 32,
            "global_head_dim": 64,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCAB,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma4_moe": (
        "Gemma4TextConfig",
        {
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 24,
            "head_dim": 32,
            "global_head_dim": 64,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 3,
            "moe_intermediate_size": 64,
            "final_logit_softcapping": 30.0,
        },
    ),
    "llama4": ("Llama4TextConfig", {**LLAMA4, "rope_parameters": {**LLAMA3, "factor": 16.0}}),
    "llama4_chunks": (
        "Llama4TextConfig",
        {
            **LLAMA4,
            "use_qk_norm": False,
            "attention_chunk_size": 24,
            "floor_scale": 50,
            "attn_scale": 0.3,
        },
    ),
    "mistral4": ("Mistral4Config", MISTRAL4),
    "mistral4_groups": ("Mistral4Config", {**MISTRAL4, **GROUPS, "q_lora_rank": None}),
    "kimi_linear": ("KimiLinearConfig", KIMI),
    "phi3_long": ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 512}),
}


@functools.cache
def reference(name: str, seed: int = 0) -> Any:
    """transformers' model in float32."""
    kind, changes = MODELS[name]
    config = getattr(transformers, kind)(**{**COMMON, **changes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    torch.manual_seed(1 + 1000 * seed)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(draw(parameter_name, parameter, name, config.tie_word_embeddings))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("layer_scalar"):
                buffer.fill_(0.8)
            elif buffer_name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(0.1 * torch.randn_like(buffer))
        if not config.tie_word_embeddings:
            # The successor's row points along the embedding as the stream holds it, brought to one size (0.5).
            head, embeddings = model.lm_head.weight, model.get_input_embeddings().weight
            head[1::2] += 0.6 * 0.5 * embeddings[0::2] / embeddings.std()
    return model


def draw(name: str, parameter: Any, model: str, tied: bool) -> Any:
    """Random values in a trained model's proportions: each layer adds less to the stream than there is, some tokens are
    likelier than others, and half of them have a likely successor. (Where all logits are alike, near-ties abound and
    the rounding of weights decides them.)"""
    values, gemma = torch.randn_like(parameter), "gemma" in model
    if "norm" in name:
        last = AFTER.search(name)
        if last and model.startswith(POST_NORMED):
            return 0.1 * (parameter + 0.3 * values)
        if "q_norm" in name and model.startswith(("gemma3n", "gemma4")):  # which does not scale attention's logits
            return (parameter + 0.3 * values) * len(parameter) ** -0.5
        return parameter + 0.3 * values - (0.6 if last and gemma else 0.0)
    if name.endswith(("mamba.dt_bias", "mixer.dt_bias")):
        return 0.5 * values - 3  # a state that lasts: it fades by some 5 % a token
    if parameter.ndim == 1 or "bias" in name:
        return 0.3 * values
    if size := MIXING.get(name.split(".")[-2]):
        return size * values
    if "embed" in name and not gemma:
        return (0.2 if tied else 0.5) * values
    values = values * parameter.shape[-1] ** -0.5
    if any(part in name for part in ("o_proj", "out_proj", "down_proj", "output_linear", "w2")):
        values = 0.2 * values
    if "lm_head" in name:
        values = values * torch.exp(torch.randn(len(values), 1))
    return values


def save(name: str, folder: Path) -> None:
    """As a Hugging Face folder, with a token for each byte."""
    reference(name).save_pretrained(folder)
    if name.startswith("kimi_linear"):
        rename_dense(folder / "model.safetensors")
    path = folder / "config.json"
    path.write_text(json.dumps(as_published(json.loads(path.read_text()))))
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({text: number for number, text in enumerate(alphabet)}, []))
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))


def rename_dense(path: Path) -> None:
    """Layers without experts get the names of published files. transformers gives them those of layers with experts."""
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    tensors = safetensors.load_file(path)
    names = {name: re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", name) for name in tensors}
    safetensors.save_file({names[name]: tensor for name, tensor in tensors.items()}, path, {"format": "pt"})


def kimi_published(config: dict[str, Any]) -> dict[str, Any]:
    numbers = {
        name: [i for i, kind in enumerate(config["layer_types"], 1) if kind == own]
        for name, own in (("full_attn_layers", "full_attention"), ("kda_layers", "linear_attention"))
    }
    sizes = {"head_dim": config["linear_head_dim"], "num_heads": config["linear_num_heads"]}
    return {
        "linear_attn_config": {**numbers, **sizes, "short_conv_kernel_size": config["linear_conv_kernel_dim"]},
        "first_k_dense_replace": config["mlp_layer_types"].index("sparse"),
        "moe_router_activation_func": "sigmoid",
    }


OF_EXPERTS = re.compile(r"expert|^moe_|^n_group$|^topk_group$")


def as_published(config: dict[str, Any]) -> dict[str, Any]:
    """With what the families' published files say, and transformers writes no longer."""
    if config["model_type"] in ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "minimax_m2"):
        config["scoring_func"] = "sigmoid"
    if config["model_type"] == "deepseek_v2":
        config["scoring_func"] = "softmax"
    if config["model_type"] == "minimax_m2":
        config["rotary_dim"] = config["head_dim"] // 2
    if config["model_type"] == "mistral4":
        config["architectures"] = ["Mistral3ForConditionalGeneration"]
    if config["model_type"] == "kimi_linear":
        return config | kimi_published(config)
    if config["model_type"] == "granitemoehybrid":
        words = {"linear_attention": "mamba", "full_attention": "attention"}
        return config | {"layer_types": [words[kind] for kind in config["layer_types"]]}
    if config["model_type"] != "nemotron_h":
        return config
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
    pattern = "".join(letters[kind] for kind in config.pop("layers_block_type"))
    if "E" not in pattern:
        config = {key: value for key, value in config.items() if not OF_EXPERTS.search(key)}
    return config | {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}


@functools.cache
def checkpoint(name: str, seed: int = 0) -> HuggingFaceCheckpoint:
    model = reference(name, seed)
    weights = {key: InMemory(value.detach().numpy()) for key, value in model.state_dict().items()}
    return HuggingFaceCheckpoint(model.config.to_dict(), weights)


class Rounded(HuggingFaceCheckpoint):
    """The same checkpoint, its matrices (but for routers) as floats that W8 holds without loss."""

    def __init__(self, given: HuggingFaceCheckpoint) -> None:
        self.metadata, self.tensors = given.metadata, given.tensors

    def floats(self, name: str) -> F32:
        values = super().floats(name)
        if (
            values.ndim == 1
            or name.endswith(".bias")
            or "gate_inp" in name
            or "ssm_a_log" in name
            or re.search(r"^blk.*altup_", name)
            or ("inp_gate" in name and self.metadata["model_type"] == "gemma3n_text")
            or name.endswith(("conv.weight", "conv1d.weight"))
        ):
            return values
        rows = values.reshape(-1, values.shape[-1])
        return dequantise(round_to(W8_GROUPED, rows)).reshape(values.shape)


def family(name: str) -> str:
    return read_config(checkpoint(name)).family


@functools.cache
def tokens(length: int = 100) -> list[int]:
    return [int(token) for token in np.random.default_rng(7).integers(0, VOCAB, length)]


def reference_logits(name: str, length: int = 100) -> F32:
    with torch.no_grad():
        logits: F32 = reference(name)(torch.tensor([tokens(length)])).logits[0].numpy()
    return logits


def make_model(backend: Backend, name: str, seed: int = 0) -> Model:
    """In integers: W8."""
    return load(backend, checkpoint(name, seed))


def make_runner(
    backend: Backend, model: Model, form: KvForm = KvForm.KEYS_TWO_LIMBS, record: bool = True, max_chunk: int = 512
) -> SessionRunner:
    return SessionRunner.make(
        backend, model, num_tokens=1024, max_sessions=4, max_chunk=max_chunk, kv_form=form, record=record
    )  # fmt: skip


def all_logits(runner: SessionRunner, given: list[int], lengths: list[int]) -> F32:
    """Logits of every token, the prompt taken in chunks of these lengths."""
    session, start, logits = runner.open(len(given)), 0, []
    for length in lengths:
        logits.append(runner.execute([Work(session, given[start : start + length], length)]).copy())
        start += length
    runner.close(session)
    assert start == len(given)
    return np.concatenate(logits)
