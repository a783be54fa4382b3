"""The config of a GGUF file that llama.cpp's converter made equals that of the Hugging Face folder it was made of."""

import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from surefoot.models import ModelConfig, read_config
from surefoot.models.config import QueryGrowth
from surefoot.models.shapes import check_shapes
from surefoot.ops import Groups, RopeForm, attention_factor, inverse_frequencies
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from surefoot.weights.metadata import MetadataError
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


def test_attention_in_both_directions_is_refused() -> None:
    config = {**tiny.reference("gemma4").config.to_dict(), "use_bidirectional_attention": "all"}
    with pytest.raises(ValueError, match="all see each other"):
        read_config(HuggingFaceCheckpoint(config, {}))


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("granitemoehybrid", {"mamba_n_groups": 2}, "2 groups of Mamba-2's heads"),
        ("granitemoehybrid", {"position_embedding_type": "alibi"}, "positions by 'alibi'"),
        ("granitemoehybrid", {"mamba_d_head": 24}, "heads of 24 lanes"),
        ("hunyuan_v1_moe", {"moe_topk": [3, 2, 3]}, "one number for all layers"),
        ("gemma3n", {"altup_active_idx": 1}, "work on stream 1"),
        ("gemma3n", {"activation_sparsity_pattern": [0.9]}, "1 layers of 6"),
        ("kimi_linear", {"moe_layer_freq": 2}, "later layers have no experts"),
        ("kimi_linear", {"linear_head_dim": 24}, "heads of 24 lanes"),
        ("llama4", {"num_experts_per_tok": 2}, "with 2 experts for a token"),
        ("llama4", {"moe_layers": [1, 2]}, "moe_layers does not list"),
        ("llama4", {"layer_types": ["full_attention"] * 4}, "windows are not those of the layers that rotate"),
        ("nemotron_h_moe", {"moe_latent_size": 32}, "Nemotron 3 Super"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "chosen by 'noaux_tc'"),
        ("nemotron_h", {"sliding_window": 64}, "sliding window"),
        ("nemotron_h", {"mlp_hidden_act": "silu"}, "'silu' is not supported"),
        ("nemotron_h", {"layers_block_type": ["mamba", "mlp", "attention", "moe"]}, "beside layers of experts"),
        ("nemotron_h", {"layers_block_type": ["mamba", "conv"]}, "kind 'conv'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(name: str, changes: dict[str, Any], reason: str) -> None:
    config = {**tiny.reference(name).config.to_dict(), **changes}
    with pytest.raises(ValueError, match=reason):
        read_config(HuggingFaceCheckpoint(config, {}))


# Tensors whose form the converter changes: states' vectors, and matrices that Hugging Face's files have fused. Those of
# indexers are not read of folders.
REWRITTEN = re.compile(
    r"\.indexer\.|ssm_(a|d|(norm|conv1d_[qkv])\.weight)$|ffn_(gate|up|gate_up|gate_inp)(_shexp|_exps)?\.weight$"
)
REWRITTEN_NEXT = re.compile(rf"{REWRITTEN.pattern}|attn_(qkv|gate)\.weight$")  # one matrix in the folder


def which_differ(got: ModelConfig, want: ModelConfig, name: str) -> dict[str, Any]:
    """Fields in which the converter's file may differ from the folder."""
    fields: dict[str, Any] = {}
    if name.startswith(("hunyuan_v1_dense", "granitemoehybrid", "nemotron_h")):
        fields["context"] = got.context  # which the converter sets to 256 Ki or 1 Mi
    if name == "granitemoehybrid_attention":
        fields["family"] = got.family  # granite, whose layers are the same
    if want.moe is not None and got.moe is not None:
        fields["ffn"] = got.ffn  # of an expert or of what is shared: layers of experts do not use it
    if got.delta is not None and want.delta is not None and not want.delta.by_lane:
        reorders = got.family != "qwen3_next"  # the converter changes the order of the others' heads
        fields["delta"] = replace(want.delta, tiled=reorders)
        fields["norm"] = replace(want.norm, weight_offset=0.0)  # and adds one to norms
    return fields


@pytest.mark.parametrize("name", converted.NAMES)
def test_config_is_the_same_from_both(name: str) -> None:
    header, folder = converted.stored(name), tiny.checkpoint(name)
    got, want = read_config(header), read_config(folder)  # type: ignore[arg-type]
    assert alike(comparable(got), comparable(replace(want, **which_differ(got, want, name))))
    check_shapes(got, header.tensors)
    rows = {tensor: shape.shape for tensor, shape in header.tensors.items() if not tensor.startswith(("rope_", "blk."))}
    in_layers = {tensor: shape.shape for tensor, shape in header.tensors.items() if tensor.startswith("blk.")}
    rewritten = REWRITTEN_NEXT if name == "qwen3_next" else REWRITTEN
    kept = {tensor: shape for tensor, shape in in_layers.items() if not rewritten.search(tensor)}
    assert kept
    assert rows | kept == {tensor: folder.tensors[tensor].shape for tensor in rows | kept}


@pytest.mark.parametrize(
    ("name", "changes", "groups"),
    [
        ("deepseek_v2", {"n_group": 4, "topk_group": 2}, Groups()),  # greedy
        ("deepseek_v2_groups", {}, Groups(3, 2, best=1)),
        ("deepseek_v3", {}, Groups()),
        ("deepseek_v3_groups", {}, Groups(3, 2, best=2)),
        ("nemotron_h_moe", {"n_group": 4, "topk_group": 2}, Groups(4, 2, best=2)),
    ],
)
def test_groups_of_experts(name: str, changes: dict[str, Any], groups: Groups) -> None:
    config = read_config(HuggingFaceCheckpoint({**tiny.reference(name).config.to_dict(), **changes}, {}))
    assert config.moe is not None
    assert config.moe.router.groups == groups


def test_queries_of_a_deepseek_v3_may_grow() -> None:
    header = converted.stored("deepseek_v3")
    growth = {"deepseek2.attention.temperature_scale": 0.1, "deepseek2.attention.temperature_length": 8192}
    header.metadata = {**header.metadata, **growth}
    assert read_config(header).query_growth == QueryGrowth(0.1, 8192)  # type: ignore[arg-type]


def test_a_deepseek_v3_that_does_not_say_has_groups() -> None:
    hf = tiny.reference("deepseek_v3").config.to_dict()
    config = read_config(HuggingFaceCheckpoint({key: hf[key] for key in hf if "group" not in key}, {}))
    assert config.moe is not None
    assert config.moe.router.groups == Groups(8, 4, best=2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_group": 5}, "2 of 5 groups"),  # of 12 experts
        ({"topk_group": 4}, "4 of 3 groups"),
        ({"n_group": 12}, "2 of 12 groups"),  # of one expert, where a group's score is that of two
        ({"topk_group": 1, "num_experts_per_tok": 5}, "5 experts for a token"),
    ],
)
def test_groups_that_cannot_be_are_refused(changes: dict[str, Any], reason: str) -> None:
    folder = tiny.checkpoint("deepseek_v3_groups")
    config = read_config(HuggingFaceCheckpoint({**folder.metadata, **changes}, {}))
    with pytest.raises(MetadataError, match=reason):
        check_shapes(config, folder.tensors)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_the_context_ends_where_an_indexer_would_choose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' model with fewer chosen tokens: the same up to as many, and another one after them."""
    model, whole = tiny.reference(name), tiny.reference_logits(name)
    config = {**model.config.to_dict(), "index_topk": 32}
    assert read_config(HuggingFaceCheckpoint(config, {})).context == 32
    for module in model.modules():
        if hasattr(module, "index_topk"):
            monkeypatch.setattr(module, "index_topk", 32)
    fewer = tiny.reference_logits(name)
    assert np.allclose(whole[:32], fewer[:32], atol=1e-5)
    assert np.abs(whole[32:] - fewer[32:]).max() > 0.01 * np.abs(whole).max()


def test_a_kimi_k2_is_a_deepseek_v3() -> None:
    config = tiny.reference("deepseek_v3").config.to_dict()
    kimi = HuggingFaceCheckpoint({**config, "model_type": "kimi_k2"}, {})
    assert read_config(kimi) == read_config(HuggingFaceCheckpoint(config, {}))
