"""Tensors of Hugging Face checkpoints under GGUF's names.

What a checkpoint keeps in one tensor or in many is split or stacked as GGUF has it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from surefoot.ops.arrays import Array
from surefoot.weights.derived import Derived, Padded, Stacked, Stored
from surefoot.weights.metadata import need
from surefoot.weights.safetensors import SafetensorsError

ENCODER_PREFIXES = ("bert.", "roberta.", "new.", "gte.", "nomic_bert.")
PREFIXES = (
    *(f"{name}encoder." for name in ("", *ENCODER_PREFIXES)), *ENCODER_PREFIXES, "model.language_model.",
    "language_model.model.", "language_model.", "model.", "backbone.",
)  # fmt: skip
WHOLE = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "embedding_norm": "token_embd_norm",
    "lm_head": "output",
    "score": "cls.output",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "dense_2": "dense_2",
    "dense_3": "dense_3",
}
BERT_WHOLE = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "emb_ln": "token_embd_norm",
    "pooler.dense": "cls",
    "classifier.dense": "cls",
    "classifier": "cls.output",
    "classifier.out_proj": "cls.output",
}
MODERNBERT_WHOLE = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "final_norm": "output_norm",
    "head.dense": "cls",
    "head.norm": "cls.norm",
    "classifier": "cls.output",
}
BERTS = ("bert", "camembert", "gte", "jina_embeddings_v3", "new", "nomic_bert", "roberta", "xlm-roberta")
EAGLE_WHOLE = {
    "fc": "fc",
    "input_norm": "enc.output_norm",
    "d2t": "d2t",
    **{f"fc_norm.{number}": f"fc_norm.{number}" for number in range(16)},
}
MEDUSA, MAX_MEDUSA_HEADS, MAX_MEDUSA_BLOCKS = "medusa", 16, 8
MEDUSA_PARTS = [
    f"{MEDUSA}.{head}.{part}" for head in range(MAX_MEDUSA_HEADS) for part in (*range(MAX_MEDUSA_BLOCKS), "output")
]
FAMILY_WHOLE = {
    "eagle3": EAGLE_WHOLE,
    MEDUSA: {part: part for part in MEDUSA_PARTS},
    "nemotron_h": {"embeddings": "token_embd", "norm_f": "output_norm"},
    "modernbert": MODERNBERT_WHOLE,
    **dict.fromkeys(BERTS, BERT_WHOLE),
}
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.gate.wg": "ffn_gate_inp",
    **dict.fromkeys(
        (
            "mlp.gate.e_score_correction",
            "mlp.e_score_correction",
            "block_sparse_moe.e_score_correction",
            "mlp.moe_statics.e_score_correction",
            "mlp.gate.moe_statics.e_score_correction",
        ),
        "exp_probs_b",
    ),
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
    "mlp.shared_mlp.up_proj": "ffn_up_shexp",
    "mlp.shared_mlp.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
# Names that differ between families.
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
DELTA = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a_log",
    "linear_attn.dt": "ssm_dt",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
GEMMA4 = {
    **GEMMA,
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "layer_scalar": "layer_output_scale",
}
GEMMA3N = {
    **GEMMA,
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "altup.correct_output_scale": "altup_correct_scale",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
MAMBA2 = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "dt": "ssm_dt",
    "A_log": "ssm_a_log",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
GRANITE_HYBRID = {
    **{f"mamba.{part}": name for part, name in MAMBA2.items()},
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps",
}
GRANITE_DENSE = {"shared_mlp.input_linear": "ffn_up", "shared_mlp.output_linear": "ffn_down"}
NEMOTRON_H = {
    **{f"mixer.{part}": name for part, name in MAMBA2.items()},
    "norm": "attn_norm",
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp",
    "mixer.gate.e_score_correction": "exp_probs_b",
    "mixer.experts.up_proj": "ffn_up_exps",
    "mixer.experts.down_proj": "ffn_down_exps",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
KIMI = {
    **{
        f"self_attn.{module}{part}": name
        for module in ("", "forget_gate.")
        for part, name in {"f_a_proj": "ssm_f_a", "f_b_proj": "ssm_f_b", "dt": "ssm_dt", "A_log": "ssm_a_log"}.items()
    },
    "self_attn.g_a_proj": "ssm_g_a",
    "self_attn.g_b_proj": "ssm_g_b",
    "self_attn.b_proj": "ssm_beta",
    "self_attn.o_norm": "ssm_norm",
    "self_attn.conv1d": "ssm_conv1d",
    **{f"self_attn.{part}_conv1d": f"ssm_conv1d_{part}" for part in "qkv"},
    "block_sparse_moe.gate.e_score_correction": "exp_probs_b",
    **{f"block_sparse_moe.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}
LLAMA4 = {
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
    "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
    "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
}
LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert": "exp_probs_b",
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps",
    "feed_forward.experts.down_proj": "ffn_down_exps",
}
BERT = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    **dict.fromkeys(("attn.Wqkv", "mixer.Wqkv"), "attn_qkv"),
    **dict.fromkeys(("attn.out_proj", "mixer.out_proj"), "attn_output"),
    "attention.qkv_proj": "attn_qkv",
    "attention.o_proj": "attn_output",
    **dict.fromkeys(("norm1", "attn_ln", "post_attention_layernorm"), "attn_output_norm"),
    **dict.fromkeys(("norm2", "mlp_ln", "post_mlp_layernorm"), "layer_output_norm"),
    "attention.self.layer_norm_q": "attn_q_norm",
    "attention.self.layer_norm_k": "attn_k_norm",
    "layer_norm_1": "attn_norm_2",
    **dict.fromkeys(("mlp.layernorm", "layer_norm_2"), "layer_output_norm"),
    **dict.fromkeys(("mlp.gated_layers", "mlp.up_gated_layer"), "ffn_up"),
    **dict.fromkeys(("mlp.wo", "mlp.down_layer"), "ffn_down"),
    **dict.fromkeys(("mlp.fc1", "mlp.fc11"), "ffn_up"),
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
}
MODERNBERT = {
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}
# The layer that drafts: its own parts, beside those of any layer. It comes after the model's layers.
MTP = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head_norm",
    "embed_tokens": "embed_tokens",
    "lm_head": "shared_head_head",
}
MTP_FAMILIES = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next")
AFTER_ATTENTION = {"post_attention_layernorm": "post_attention_norm"}
FAMILY_LAYER = {
    **dict.fromkeys(BERTS, BERT),
    "modernbert": MODERNBERT,
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "gemma3_text": GEMMA,
    "gemma3n": GEMMA3N,
    "gemma3n_text": GEMMA3N,
    "qwen3_5": DELTA,
    "qwen3_5_text": DELTA,
    "qwen3_5_moe": DELTA,
    "qwen3_5_moe_text": DELTA,
    "qwen3_next": DELTA,
    "kimi_linear": KIMI,
    "llama4_text": LLAMA4,
    "eagle3": {"hidden_norm": "attn_norm_2"},
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "granitemoehybrid": GRANITE_HYBRID,
    "nemotron_h": NEMOTRON_H,
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "olmo2": GEMMA,
    "olmo3": GEMMA,
    "exaone4": GEMMA,
    "glm4_moe": AFTER_ATTENTION,
    "gpt_oss": AFTER_ATTENTION,
    "seed_oss": AFTER_ATTENTION,
}
TRANSPOSED_EXPERTS = ("gpt_oss", "llama4_text")  # model types whose experts are [columns, rows]
CONVOLUTIONS = ("conv.conv", "linear_attn.conv1d", "mamba.conv1d", "mixer.conv1d")  # [columns, 1, taps]
ONE_STREAM = re.compile(r"altup_(unembed_)?projections\.(\d+)")  # of Gemma 3n
IN_LAYER = re.compile(r"layers?\.(\d+)\.(.+)")
ONE_EXPERT = re.compile(
    r"(?:mlp|mixer|feed_forward|block_sparse_moe)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)"
)
EXPERT_PARTS = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}


def renamed(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> Iterator[tuple[str, Stored]]:
    """config: of the text model. Tensors that no model of ours reads are left out."""
    layer_names = _layer_names(config)
    whole = {**WHOLE, **FAMILY_WHOLE.get(config.get("model_type", ""), {})}
    separate: dict[str, dict[int, Stored]] = {}
    for full_name, tensor in stored.items():
        prefix = next((prefix for prefix in PREFIXES if full_name.startswith(prefix)), "")
        name, kind = _split_kind(full_name.removeprefix(prefix))
        if name.startswith("mtp.") and config["model_type"] in MTP_FAMILIES:
            name = _mtp_name(need(config, "num_hidden_layers"), name.removeprefix("mtp."))
        in_layer = IN_LAYER.fullmatch(name)
        if stream := ONE_STREAM.fullmatch(name):
            stacked = "altup_unembd_proj" if stream[1] else "altup_proj"
            separate.setdefault(f"{stacked}.{kind}", {})[int(stream[2])] = tensor
            continue
        if in_layer is None:
            if name in whole and not (name == "lm_head" and config.get("tie_word_embeddings")):
                yield f"{whole[name]}.{kind}", _with_all_tokens(config, name, tensor)
            continue
        block, part = f"blk.{in_layer[1]}", in_layer[2]
        if expert := ONE_EXPERT.fullmatch(part):
            separate.setdefault(f"{block}.ffn_{EXPERT_PARTS[expert[2]]}_exps.{kind}", {})[int(expert[1])] = tensor
        else:
            yield from _rename_part(config, layer_names, block, part, kind, tensor)
    for name, experts in separate.items():
        if missing := set(range(len(experts))) - experts.keys():
            raise SafetensorsError(f"{name}: expert {min(missing)} is missing; fetch the checkpoint again")
        if len({expert.shape for expert in experts.values()}) != 1:
            raise SafetensorsError(f"{name}: the experts differ in shape; fetch the checkpoint again")
        yield name, Stacked([experts[i] for i in range(len(experts))])


def _with_all_tokens(config: Mapping[str, Any], name: str, tensor: Stored) -> Stored:
    """Gemma 3n has embeddings for single layers of text's tokens alone."""
    if name != "embed_tokens_per_layer" or tensor.shape[0] >= need(config, "vocab_size"):
        return tensor
    return Padded(tensor, config["vocab_size"])


def _mtp_name(num_layers: int, name: str) -> str:
    """The name of the drafting layer's part as if it were the layer after the last."""
    in_layer = IN_LAYER.fullmatch(name)
    return f"layers.{num_layers + int(in_layer[1])}.{in_layer[2]}" if in_layer else f"layers.{num_layers}.mtp.{name}"


def _layer_names(config: Mapping[str, Any]) -> Mapping[str, str]:
    kind = config["model_type"]
    dense = GRANITE_DENSE if kind == "granitemoehybrid" and not config.get("num_local_experts") else {}
    mtp = {f"mtp.{part}": f"nextn.{name}" for part, name in MTP.items()}
    return {**LAYER, **FAMILY_LAYER.get(kind, {}), **dense, **mtp}


def _split_kind(name: str) -> tuple[str, str]:
    """The name of the module, and "weight" or "bias". Some names end in "_bias", or have neither."""
    if name.endswith("_bias"):
        return name.removesuffix("_bias"), "bias"
    stem, dot, last = name.rpartition(".")
    return (stem, last) if dot and last in ("weight", "bias") else (name, "weight")


def _rename_part(
    config: Mapping[str, Any], names: Mapping[str, str], block: str, part: str, kind: str, tensor: Stored
) -> Iterator[tuple[str, Stored]]:
    transposed = config["model_type"] in TRANSPOSED_EXPERTS and kind == "weight"
    of_experts = re.sub("^feed_forward", "mlp", part) if transposed else part
    if of_experts == "mlp.experts.gate_up_proj":
        yield from _split_gate_up(block, kind, tensor, config["model_type"] == "gpt_oss", transposed)
    elif of_experts == "mlp.experts.down_proj" and transposed:
        experts, k, n = _three(tensor, part)
        yield f"{block}.ffn_down_exps.weight", Derived((experts, n, k), lambda: tensor.floats().swapaxes(1, 2))
    elif part == "mlp.up_gate_proj":
        for name, rows in zip(("up", "gate"), _halves(tensor), strict=True):
            yield f"{block}.ffn_{name}.weight", rows
    elif part == "self_attn.kv_b_proj":
        yield from _split_latent(config, block, tensor)
    elif part in CONVOLUTIONS and part in names and kind == "weight":
        columns, _, taps = _three(tensor, part)
        yield f"{block}.{names[part]}.weight", Derived((columns, taps), lambda: tensor.floats().reshape(columns, taps))
    elif part in names:
        name = names[part]
        yield f"{block}.{name}" if name.endswith(".scale") else f"{block}.{name}.{kind}", tensor


def _halves(tensor: Stored) -> tuple[Derived, Derived]:
    """Of the rows of a matrix."""
    half, *columns = tensor.shape[0] // 2, *tensor.shape[1:]
    parts = (slice(half), slice(half, 2 * half))
    first, second = (Derived((half, *columns), partial(tensor.floats, rows)) for rows in parts)
    return first, second


def _three(tensor: Stored, name: str) -> tuple[int, int, int]:
    if len(tensor.shape) != 3:
        raise SafetensorsError(f"{name} has shape {tensor.shape}, not three dimensions")
    outer, rows, columns = tensor.shape
    return outer, rows, columns


def _split_gate_up(
    block: str, kind: str, tensor: Stored, interleaved: bool, transposed: bool
) -> Iterator[tuple[str, Stored]]:
    """The experts' gate and up matrices from one tensor, where they are two halves or interleaved."""
    if len(tensor.shape) != (3 if kind == "weight" else 2):
        raise SafetensorsError(f"{block}: the experts' gate_up_proj has shape {tensor.shape}")
    outer, *inner = tensor.shape[:1] + tensor.shape[:0:-1] if transposed else tensor.shape
    half = inner[0] // 2
    for number, name in enumerate(("gate", "up")):
        part = slice(number, None, 2) if interleaved else slice(number * half, (number + 1) * half)

        def make(part: slice = part) -> Array:
            values = tensor.floats()
            return (values.swapaxes(1, 2) if transposed else values)[:, part]

        yield f"{block}.ffn_{name}_exps.{kind}", Derived((outer, half, *inner[1:]), make)


def _split_latent(config: Mapping[str, Any], block: str, tensor: Stored) -> Iterator[tuple[str, Stored]]:
    """The matrices that project the latent vector to a head's keys and values. The keys' matrix is transposed, because
    it is applied to queries."""
    heads, plain, value = (need(config, key) for key in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    if len(tensor.shape) != 2 or tensor.shape[0] != heads * (plain + value):
        raise SafetensorsError(f"{block}: kv_b_proj has shape {tensor.shape}, unlike {heads} heads of {plain + value}")
    rank = tensor.shape[1]

    def by_head() -> Array:
        return tensor.floats().reshape(heads, plain + value, rank)

    yield f"{block}.attn_k_b.weight", Derived((heads, rank, plain), lambda: by_head()[:, :plain].swapaxes(1, 2))
    yield f"{block}.attn_v_b.weight", Derived((heads, value, rank), lambda: by_head()[:, plain:])
