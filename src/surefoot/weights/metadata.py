"""Checks a checkpoint's metadata: one table of bounds for GGUF's keys and config.json's.

Every field that surefoot reads is checked when a checkpoint is opened, so that later code can rely on types and ranges.
Bounds are well above the largest model in use, and well below values that would cost memory or time by themselves.
models/shapes.py checks whether fields agree with each other and with the tensors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.weights.gguf_header import Strings

Metadata = Mapping[str, Any]
MAX_LAYERS = 1024
BY_LAYER = "per_layer_config"  # objects with fields of the model, which differ by layer
SHOWN = 60  # characters of a wrong value that an error shows


class MetadataError(ValueError):
    """A field of the metadata is wrong. The message names it, its value, and what is allowed."""


@dataclass(frozen=True)
class Rule:
    """A check of a field's value."""

    allowed: str  # what is allowed, for the error message
    accepts: Callable[[Any], bool]  # whether a value is allowed


def whole(low: int, high: int) -> Rule:
    return Rule(f"a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def real(low: float, high: float) -> Rule:
    """A number within bounds; NaN never is."""
    return Rule(
        f"a number from {low:g} to {high:g}", lambda value: type(value) in (int, float) and low <= value <= high
    )


def one_of(*texts: str) -> Rule:
    return Rule(" or ".join(texts), lambda value: isinstance(value, str) and value in texts)


def listed(rule: Rule, max_length: int, min_length: int = 0) -> Rule:
    def accepts(value: Any) -> bool:
        is_list = isinstance(value, list | tuple) and min_length <= len(value) <= max_length
        return is_list and all(map(rule.accepts, value))

    return Rule(f"a list of {min_length} to {max_length}, each {rule.allowed}", accepts)


def per_layer(high: int) -> Rule:
    """A count for all layers, or an array with one for each layer, some of them 0."""
    count, count_or_none = whole(1, high), whole(0, high)

    def accepts(value: Any) -> bool:
        if not isinstance(value, np.ndarray):
            return count.accepts(value)
        return len(value) <= MAX_LAYERS and all(map(count_or_none.accepts, value.tolist())) and bool(value.any())

    return Rule(f"{count.allowed}, or one for each layer", accepts)


def array(kinds: str, allowed: str) -> Rule:
    """An array of numbers in GGUF metadata; `kinds` are numpy's letters."""
    return Rule(allowed, lambda value: isinstance(value, np.ndarray) and value.dtype.kind in kinds)


def either(first: Rule, second: Rule) -> Rule:
    return Rule(f"{first.allowed}, or {second.allowed}", lambda value: first.accepts(value) or second.accepts(value))


TEXT = Rule("a text", lambda value: isinstance(value, str))
NAME = Rule("a text of at most 200 characters", lambda value: isinstance(value, str) and len(value) <= 200)
FLAG = Rule("true or false", lambda value: isinstance(value, bool | int) and value in (0, 1))
PATTERN = Rule(
    "letters L and G", lambda value: isinstance(value, str) and 0 < len(value) <= 1024 and set(value) <= {"L", "G"}
)
LAYER_LETTERS = Rule(
    "letters M, *, - and E",
    lambda value: isinstance(value, str) and 0 < len(value) <= 1024 and set(value) <= set("M*-E"),
)
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
OBJECTS = Rule(
    "an object of objects", lambda value: isinstance(value, dict) and all(isinstance(v, dict) for v in value.values())
)
TEXTS = Rule("a list of texts", lambda value: isinstance(value, Strings))


def counts(low: int, high: int) -> Rule:
    """An array of whole numbers in GGUF metadata, one per layer."""

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, np.ndarray)
            and value.dtype.kind in "iu"
            and bool(((value >= low) & (value <= high)).all())
        )

    return Rule(f"a list of whole numbers from {low} to {high}", accepts)


LAYER_KIND = one_of(
    "sliding_attention",
    "chunked_attention",
    "full_attention",
    "conv",
    "linear_attention",
    "indexed_attention",
    "attention",
    "mamba",
    "mlp",
    "moe",
)
COUNT_OF_TOKENS = whole(1, 1 << 27)
LANES, INNER, LAYERS = whole(1, 1024), whole(1, 1 << 20), whole(0, 1024)
FREQUENCY_BASE, FACTOR, SCALE = real(2, 1e12), real(1e-3, 1e6), real(1e-6, 1e6)

# The rule; GGUF's keys without the architecture's prefix; config.json's keys, prefixed with the part they belong to.
FIELDS: tuple[tuple[Rule, tuple[str, ...], tuple[str, ...]], ...] = (
    (whole(1, 1024), ("block_count",), ("num_hidden_layers", "n_layer")),
    (whole(1, 1 << 17), ("embedding_length",), ("hidden_size", "n_embd")),
    (whole(1, 1 << 22), ("vocab_size",), ("vocab_size",)),
    (COUNT_OF_TOKENS, ("context_length",), ("max_position_embeddings", "n_positions")),
    (
        INNER,
        ("expert_feed_forward_length",),
        ("intermediate_size_mlp", "shared_expert_intermediate_size", "n_inner"),
    ),
    (either(INNER, counts(0, 1 << 20)), ("feed_forward_length",), ("shared_intermediate_size",)),
    (either(INNER, listed(INNER, MAX_LAYERS, 1)), (), ("intermediate_size", "moe_intermediate_size")),
    (whole(0, 1 << 14), ("embedding_length_per_layer_input",), ("hidden_size_per_layer_input",)),
    (FLAG, (), ("use_double_wide_mlp",)),
    # Gemma 3n
    (whole(2, 16), ("altup.num_inputs",), ("altup_num_inputs",)),
    (whole(0, 15), ("altup.active_idx",), ("altup_active_idx",)),
    (FLAG, (), ("altup_correct_scale",)),
    (array("f", "a list of numbers"), ("activation_sparsity_scale",), ()),
    (either(real(0, 0.999), listed(real(0, 0.999), MAX_LAYERS)), (), ("activation_sparsity_pattern",)),
    (
        real(0, 1),
        ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
        ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
    ),
    (NAME, (), ("hidden_act", "hidden_activation", "mlp_hidden_act")),
    # short convolutions (LFM 2)
    (whole(2, 16), ("shortconv.l_cache",), ("conv_L_cache",)),
    (real(0, 1), (), ("norm_eps",)),
    (INNER, (), ("block_ff_dim", "block_multiple_of")),
    (FACTOR, (), ("block_ffn_dim_multiplier",)),
    (FLAG, (), ("block_auto_adjust_ff_dim",)),
    (FLAG, (), ("tie_word_embeddings",)),
    # attention
    (
        whole(1, 1024),
        ("attention.head_count",),
        ("num_attention_heads", "num_key_value_heads", "num_global_key_value_heads", "n_head"),
    ),
    (per_layer(1024), ("attention.head_count_kv",), ()),
    (LANES, ("attention.key_length", "attention.value_length"), ("head_dim", "global_head_dim")),
    (LANES, ("attention.key_length_swa", "rope.dimension_count_swa"), ()),
    (LAYERS, ("attention.shared_kv_layers",), ("num_kv_shared_layers",)),
    (FLAG, (), ("attention_k_eq_v", "enable_moe_block")),
    (FLAG, ("attention.causal",), ("is_causal", "is_decoder")),
    (whole(0, 1 << 22), (), ("pad_token_id",)),
    (either(FLAG, NAME), (), ("use_bidirectional_attention",)),
    (OBJECTS, (), (BY_LAYER,)),
    (LANES, ("attention.key_length_mla", "attention.value_length_mla"), ("qk_nope_head_dim", "v_head_dim")),
    (LANES, ("rope.dimension_count",), ("qk_rope_head_dim",)),
    (whole(1, 1 << 14), ("attention.kv_lora_rank", "attention.q_lora_rank"), ("kv_lora_rank", "q_lora_rank")),
    (COUNT_OF_TOKENS, ("attention.indexer.top_k",), ("index_topk",)),
    (whole(0, 1 << 27), ("attention.sliding_window",), ("sliding_window", "local_attention")),
    (whole(1, 1024), (), ("global_attn_every_n_layers",)),
    (either(whole(1, 1024), array("b", "a list of flags")), ("attention.sliding_window_pattern",), ()),
    (either(whole(0, 1024), PATTERN), (), ("sliding_window_pattern",)),
    (listed(FLAG, 1024), (), ("no_rope_layers",)),
    (whole(1, 1024), (), ("no_rope_layer_interval",)),
    (COUNT_OF_TOKENS, ("attention.temperature_length",), ("attention_chunk_size", "floor_scale")),
    (real(0, 100), (), ("attn_scale",)),
    (either(FLAG, whole(0, 1024)), (), ("attn_temperature_tuning",)),
    (FLAG, (), ("use_qk_norm",)),
    (FLAG, (), ("use_sliding_window",)),
    (listed(LAYER_KIND, 1024), (), ("layer_types", "layers_block_type")),
    (listed(LAYERS, 1024), (), ("full_attn_idxs",)),
    (SCALE, (), ("query_pre_attn_scalar",)),
    (
        real(0, 1e6),
        ("attn_logit_softcapping", "final_logit_softcapping"),
        ("attn_logit_softcapping", "final_logit_softcapping"),
    ),
    # the gated delta rule (Qwen 3.5)
    (whole(2, 16), ("ssm.conv_kernel",), ("linear_conv_kernel_dim",)),
    (whole(1, 512), ("ssm.state_size",), ("linear_key_head_dim", "linear_value_head_dim")),
    (whole(1, 1024), ("ssm.group_count", "ssm.time_step_rank"), ("linear_num_key_heads", "linear_num_value_heads")),
    (INNER, ("ssm.inner_size",), ()),
    (whole(1, 1024), ("full_attention_interval",), ("full_attention_interval",)),
    (array("biu", "a list of flags"), ("attention.recurrent_layers",), ()),
    (whole(0, 16), ("nextn_predict_layers",), ()),
    # EAGLE-3 heads
    (counts(0, MAX_LAYERS), ("target_layers",), ()),
    (whole(1, 1 << 17), ("target_hidden_size",), ("target_hidden_size",)),
    (FLAG, ("norm_before_residual",), ("norm_before_residual", "norm_output", "eagle/norm_before_residual")),
    (FLAG, (), ("eagle/norm_output", "eagle/use_aux_hidden_state")),
    (listed(LAYERS, 16), (), ("eagle_aux_hidden_state_layer_ids", "eagle/eagle_aux_hidden_state_layer_ids")),
    # Kimi Linear
    (LANES, ("kda.head_dim",), ("linear_head_dim", "kimi/head_dim")),
    (whole(1, 1024), (), ("linear_num_heads", "kimi/num_heads")),
    (whole(2, 16), (), ("kimi/short_conv_kernel_size",)),
    (listed(LAYERS, 1024), (), ("kimi/full_attn_layers",)),
    (LAYERS, (), ("attn_res_block_size",)),  # Kimi K3
    (COUNT_OF_TOKENS, (), ("model_max_length",)),
    (FLAG, (), ("moe_renormalize",)),
    (whole(0, 256), (), ("num_expert_group", "num_experts_per_token", "moe_layer_freq")),
    # Mamba-2 (Granite 4, Nemotron-H)
    (whole(2, 16), (), ("mamba_d_conv", "conv_kernel")),
    (whole(1, 512), (), ("mamba_d_state", "ssm_state_size")),
    (whole(1, 1024), (), ("mamba_n_heads", "mamba_num_heads", "mamba_n_groups", "n_groups", "mamba_head_dim")),
    (either(LANES, one_of("auto")), (), ("mamba_d_head",)),
    (whole(1, 16), (), ("mamba_expand",)),
    (LAYER_LETTERS, (), ("hybrid_override_pattern",)),
    (NAME, (), ("position_embedding_type", "feed_forward_type")),
    # adapters by task (jina-embeddings-v3)
    (listed(NAME, 64), (), ("lora_adaptations",)),
    (SCALE, (), ("lora_alpha",)),
    (FLAG, ("rope.scaling.finetuned",), ()),
    # multipliers
    (SCALE, ("embedding_scale", "residual_scale"), ("embedding_multiplier", "residual_multiplier")),
    (SCALE, ("attention.scale", "logit_scale"), ("attention_multiplier", "logits_scaling")),
    # experts
    (whole(0, 4096), ("expert_count",), ("num_experts", "num_local_experts", "n_routed_experts")),
    (whole(0, 256), ("expert_used_count",), ("num_experts_per_tok", "top_k_experts")),  # 0: of models without
    (whole(0, 256), ("expert_shared_count",), ("n_shared_experts",)),
    (whole(0, 256), ("expert_group_count", "expert_group_used_count"), ("n_group", "topk_group")),
    (whole(0, 1 << 17), ("moe_latent_size",), ("moe_latent_size",)),
    (whole(0, 16), ("expert_gating_func",), ()),
    (FLAG, ("expert_weights_norm",), ("norm_topk_prob",)),
    (real(0, 1e6), ("expert_weights_scale",), ("routed_scaling_factor",)),
    (LAYERS, ("leading_dense_block_count",), ("first_k_dense_replace", "num_dense_layers")),
    (whole(1, 1024), ("interleave_moe_layer_step",), ("decoder_sparse_step", "interleave_moe_layer_step")),
    (listed(LAYERS, 1024), (), ("mlp_only_layers", "moe_layers")),
    (NAME, (), ("topk_method",)),
    (whole(0, 16), (), ("num_nextn_predict_layers",)),
    (FLAG, (), ("rope_interleave",)),
    (listed(one_of("dense", "sparse"), 1024), (), ("mlp_layer_types",)),
    (LANES, (), ("rotary_dim",)),
    (either(whole(0, 256), listed(whole(0, 256), MAX_LAYERS)), (), ("moe_topk",)),
    (whole(0, 256), (), ("moe_k", "moe_num_shared_experts", "moe_layer_interval")),
    (LAYERS, (), ("moe_layer_start_index",)),
    (whole(-1, 1024), (), ("moe_layer_end_index",)),
    (SCALE, (), ("swiglu_limit", "swiglu_alpha")),
    # positions
    (FREQUENCY_BASE, ("rope.freq_base", "rope.freq_base_swa"), ("rope_theta", "rope_local_base_freq")),
    (FREQUENCY_BASE, (), ("rope/rope_theta", "rotary_emb_base", "local_rope_theta", "global_rope_theta")),
    (FLAG, (), ("rotary_emb_interleaved", "prenorm")),
    (real(0, 1), (), ("rotary_emb_fraction",)),
    (FACTOR, (), ("rotary_scaling_factor",)),
    (NAME, ("rope.scaling.type",), ("rope/rope_type", "rope/type")),
    (real(0, 1e6), ("rope.scaling.factor",), ()),  # 0: none
    (FACTOR, (), ("rope/factor", "rope/beta_fast", "rope/beta_slow")),
    (FACTOR, (), ("rope/low_freq_factor", "rope/high_freq_factor")),
    (whole(2, 1 << 27), ("rope.scaling.original_context_length",), ("original_max_position_embeddings",)),
    (whole(2, 1 << 27), (), ("rope/original_max_position_embeddings",)),
    (SCALE, ("rope.scaling.attn_factor",), ("rope/attention_factor",)),
    (real(0, 100), ("attention.temperature_scale",), ("rope/llama_4_scaling_beta",)),
    (FACTOR, ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"), ("rope/alpha",)),
    (real(0, 100), ("rope.scaling.yarn_log_multiplier",), ("rope/mscale", "rope/mscale_all_dim")),
    (real(0.01, 1), (), ("partial_rotary_factor", "rope/partial_rotary_factor")),
    (listed(FACTOR, 1024), (), ("rope/short_factor",)),
    (real(0, 1e6), (), ("rope/mixed_b",)),
    (FLAG, (), ("rope/truncate",)),
    # vectors of hidden states
    (whole(0, 16), ("pooling_type",), ()),
    (TEXTS, ("classifier.output_labels",), ()),
    (one_of("cls", "mean"), (), ("classifier_pooling",)),
    # quantised checkpoints
    (NAME, (), ("codes/quant_method", "codes/format", "codes/version", "codes/checkpoint_format")),
    (whole(1, 16), (), ("codes/bits", "codes/w_bit")),
    (listed(whole(1, 1 << 16), 2), (), ("codes/weight_block_size",)),
    (OBJECT, (), ("codes/config_groups",)),
)
# GGUF keys that have no architecture's prefix.
GENERAL = {
    "general.architecture": NAME,
    "general.name": TEXT,
    "split.no": whole(0, 99_999),
    "split.count": whole(0, 99_999),
    "split.tensors.count": whole(0, 1 << 24),
    "tokenizer.ggml.model": NAME,
    "tokenizer.ggml.pre": NAME,
    "tokenizer.ggml.tokens": TEXTS,
    "tokenizer.ggml.merges": TEXTS,
    "tokenizer.ggml.scores": array("f", "a list of numbers"),
    "tokenizer.ggml.precompiled_charsmap": array("iu", "a list of bytes"),
    "tokenizer.ggml.token_type": array("iu", "a list of whole numbers"),
    "tokenizer.ggml.add_bos_token": FLAG,
    "tokenizer.ggml.add_eos_token": FLAG,
    "tokenizer.ggml.add_space_prefix": FLAG,
    "tokenizer.chat_template": TEXT,
    "tokenizer.chat_templates": TEXTS,
    **{
        f"tokenizer.ggml.{name}_token_id": whole(-1, (1 << 32) - 1)  # beyond the vocabulary: none
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    },
}
# Objects in config.json, and the prefix of the fields in them.
PARTS = {
    "text_config": "",
    "transformer_layer_config": "",
    "eagle_config": "eagle/",
    "rope_parameters": "rope/",
    "rope_scaling": "rope/",
    "rope/full_attention": "rope/",
    "rope/sliding_attention": "rope/",
    "linear_attn_config": "kimi/",
    "quantization_config": "codes/",
    "compression_config": "codes/",
}

GGUF_RULES = {key: rule for rule, keys, _ in FIELDS for key in keys}
CONFIG_RULES = {key: rule for rule, _, keys in FIELDS for key in keys} | dict.fromkeys(PARTS, OBJECT)
CONFIG_RULES["model_type"] = NAME


def check_gguf(metadata: Metadata) -> None:
    """Checks GGUF metadata. Raises MetadataError."""
    for key, value in metadata.items():
        if rule := GENERAL.get(key):
            _check(key, value, rule)
    prefix = f"{metadata.get('general.architecture', '')}."
    for key, value in metadata.items():
        if key.startswith(prefix) and (rule := GGUF_RULES.get(key.removeprefix(prefix))):
            _check(key, value, rule)
        elif key.startswith("tokenizer.chat_template."):
            _check(key, value, TEXT)


def check_config(config: Metadata) -> None:
    """Checks config.json. A field that is null counts as absent. Raises MetadataError."""
    for key, value in _fields(config, ""):
        if rule := CONFIG_RULES.get(key):
            _check(key, value, rule)


def _fields(config: Metadata, part: str) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if value is None:
            continue
        key = f"{part}{name}"
        yield key, value
        if key in PARTS:  # an object: any other value has been refused by now
            yield from _fields(value, PARTS[key])
        elif key == BY_LAYER:
            for own in value.values():
                yield from _fields(own, part)


def _check(key: str, value: Any, rule: Rule) -> None:
    if not rule.accepts(value):
        raise MetadataError(
            f"{key} says {_shown(value)}, where {rule.allowed} is allowed: the file is damaged or not supported"
        )


def _shown(value: Any) -> str:
    text = f"a list of {len(value)}" if isinstance(value, Sequence) and not isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def need(config: Metadata, key: str) -> Any:
    """The value of a required field of config.json."""
    if config.get(key) is None:
        raise MetadataError(f"config.json has no {key}: fetch it again, or take another model")
    return config[key]
