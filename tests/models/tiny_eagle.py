"""Tiny EAGLE-3 heads in every published form, and their arithmetic in torch as the papers and model cards describe it.

Nothing here is taken from the package: rows of features, positions and masks are laid out as the published programs do
(row p has the features of token p and the embedding of token p + 1, at position p).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.ops.arrays import F32, I64

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[reference]'")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[reference]'")
numpy_files = pytest.importorskip("safetensors.numpy")
FORMS = ("specforge", "speculators", "gguf")
EPS, THETA, LANES = 1e-5, 10000.0, 16  # lanes of a head


@dataclass(frozen=True)
class TinyHead:
    """A head's tensors by SpecForge's names, and what its config says."""

    tensors: dict[str, F32]
    ids: I64  # token ids that it guesses
    vocab: int  # tokens of the target
    layers: tuple[int, ...]  # before which features are taken
    heads: int
    kv_heads: int
    flags: dict[str, bool] = field(default_factory=dict)  # norm_before_residual, norm_output

    @property
    def width(self) -> int:
        return len(self.tensors["norm.weight"])

    def config(self) -> dict[str, Any]:
        return {
            "model_type": "llama", "hidden_size": self.width, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": LANES, "num_hidden_layers": 1, "vocab_size": self.vocab,
            "intermediate_size": len(self.tensors["midlayer.mlp.up_proj.weight"]), "max_position_embeddings": 2048,
            "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu",
        }  # fmt: skip


def make_head(
    embeddings: F32, output: F32, layers: tuple[int, ...] = (0, 1, 2), seed: int = 3, *, width: int = 0,
    kv_heads: int = 0, ids: Sequence[int] = (), own_table: bool = False, norms: str = "", **flags: bool,
) -> TinyHead:  # fmt: skip
    """A random head whose attention mostly passes the token on, so that drafts for targets of `tiny` are often right.

    embeddings, output: the target's. norms: "heads", "fc_norm" or "input_norm" for those that some heads have."""
    rng, (vocab, target_width) = np.random.default_rng(seed), embeddings.shape
    width = width or target_width
    heads = width // LANES
    kv_heads = kv_heads or heads
    guessed = np.array(ids or range(0, vocab, 2), np.int64)

    def drawn(rows: int, columns: int, scale: float = 1.0) -> F32:
        return (scale * rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def near_one(lanes: int) -> F32:
        return (1 + 0.2 * rng.standard_normal(lanes)).astype(np.float32)

    keys = drawn(kv_heads * LANES, 2 * width, 2.0)
    values = drawn(kv_heads * LANES, 2 * width, 0.2)
    values[:, :width] += np.eye(kv_heads * LANES, width, dtype=np.float32)
    queries = np.repeat(keys.reshape(kv_heads, -1), heads // kv_heads, axis=0).reshape(heads * LANES, -1)
    layer = {
        "self_attn.q_proj": queries + drawn(*queries.shape, 0.3),
        "self_attn.k_proj": keys,
        "self_attn.v_proj": values,
        "self_attn.o_proj": np.eye(width, dtype=np.float32) + drawn(width, width, 0.2),
        "mlp.gate_proj": drawn(2 * width, width),
        "mlp.up_proj": drawn(2 * width, width),
        "mlp.down_proj": drawn(width, 2 * width, 0.2),
        **{name: near_one(width) for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
        **({name: near_one(LANES) for name in ("self_attn.q_norm", "self_attn.k_norm")} if norms == "heads" else {}),
    }
    tensors = {f"midlayer.{name}.weight": values for name, values in layer.items()}
    tensors["fc.weight"] = drawn(width, len(layers) * target_width, 0.5)
    tensors["norm.weight"] = near_one(width)
    fits, noise = width == target_width, drawn(len(guessed), width)
    tensors["lm_head.weight"] = (output[guessed] + 0.1 * noise).astype(np.float32) if fits else noise
    if own_table or not fits:
        tensors["embed_tokens.weight"] = drawn(vocab, width, 5.0)
    if norms == "fc_norm":
        tensors |= {f"fc_norm.{part}.weight": near_one(target_width) for part in range(len(layers))}
    if norms == "input_norm":
        tensors["input_norm.weight"] = near_one(len(layers) * target_width)
    return TinyHead(tensors, guessed, vocab, layers, heads, kv_heads, flags)


# ---- files ----


def save(head: TinyHead, form: str, folder: Path, **changes: Any) -> Path:
    """The head's folder or file. changes: of its config."""
    folder.mkdir(exist_ok=True)
    if form == "gguf":
        return _save_gguf(head, folder / "head.gguf")
    offsets = {"d2t": head.ids - np.arange(len(head.ids)), "t2d": np.isin(np.arange(head.vocab), head.ids)}
    if form == "specforge":
        after = {"eagle_aux_hidden_state_layer_ids": [number - 1 for number in head.layers]}
        config = {
            **head.config(), "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(head.ids),
            **({"eagle_config": after} if min(head.layers) > 0 else {}), **head.flags,
        }  # fmt: skip
        tensors = head.tensors
    else:
        config = {
            "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"],
            "transformer_layer_config": head.config(), "draft_vocab_size": len(head.ids),
            "eagle_aux_hidden_state_layer_ids": list(head.layers), **head.flags,
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "tiny"}},
        }  # fmt: skip
        tensors = {name.replace("midlayer", "layers.0"): values for name, values in head.tensors.items()}
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    numpy_files.save_file({**tensors, **offsets}, folder / "model.safetensors")
    return folder


GGUF_NAMES = {
    "midlayer.self_attn.q_proj": "blk.0.attn_q", "midlayer.self_attn.k_proj": "blk.0.attn_k",
    "midlayer.self_attn.v_proj": "blk.0.attn_v", "midlayer.self_attn.o_proj": "blk.0.attn_output",
    "midlayer.mlp.gate_proj": "blk.0.ffn_gate", "midlayer.mlp.up_proj": "blk.0.ffn_up",
    "midlayer.mlp.down_proj": "blk.0.ffn_down", "midlayer.input_layernorm": "blk.0.attn_norm",
    "midlayer.hidden_norm": "blk.0.attn_norm_2", "midlayer.post_attention_layernorm": "blk.0.ffn_norm",
    "norm": "output_norm", "lm_head": "output", "fc": "fc", "input_norm": "enc.output_norm",
    "embed_tokens": "token_embd",
}  # fmt: skip


def _save_gguf(head: TinyHead, path: Path) -> Path:
    """As llama.cpp's converter writes it: neighbouring lanes rotate together, and ids are written as such."""
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_context_length(2048)
    writer.add_embedding_length(head.width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * head.width)
    writer.add_head_count(head.heads)
    writer.add_head_count_kv(head.kv_heads)
    writer.add_key_length(LANES)
    writer.add_value_length(LANES)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_array("eagle3.target_layers", list(head.layers))
    writer.add_uint32("eagle3.target_hidden_size", head.tensors["fc.weight"].shape[1] // len(head.layers))
    writer.add_bool("eagle3.norm_before_residual", head.flags.get("norm_before_residual", False))
    for name, values in head.tensors.items():
        key = GGUF_NAMES[name.removesuffix(".weight")]
        if key in ("blk.0.attn_q", "blk.0.attn_k"):
            values = values.reshape(-1, 2, LANES // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(f"{key}.weight", np.ascontiguousarray(values))
    writer.add_tensor("d2t", head.ids)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# ---- the reference ----


class Reference:
    """The head in torch, in float32."""

    def __init__(self, head: TinyHead, embeddings: F32) -> None:
        self.head = head
        self.parts = {name.removesuffix(".weight"): torch.from_numpy(value) for name, value in head.tensors.items()}
        self.table = self.parts.get("embed_tokens", torch.from_numpy(embeddings))

    def fused(self, streams: Sequence[Any]) -> Any:
        """streams: the target's [tokens, width], before each layer that the head reads."""
        if "fc_norm.0" in self.parts:
            streams = [self._norm(stream, f"fc_norm.{part}") for part, stream in enumerate(streams)]
        features = torch.cat(list(streams), dim=-1)
        if "input_norm" in self.parts:
            features = self._norm(features, "input_norm")
        return features @ self.parts["fc"].T

    def rows(self, tokens: Sequence[int], before: Any) -> Any:
        """The layer's rows, for each token after the row before it."""
        hidden = self._norm(before, "midlayer.hidden_norm")
        embedded = self._norm(self.table[torch.tensor(list(tokens))], "midlayer.input_layernorm")
        stream = hidden if self.head.flags.get("norm_before_residual") else before
        stream = stream + self._attention(torch.cat([embedded, hidden], dim=-1))
        x, part = self._norm(stream, "midlayer.post_attention_layernorm"), self._part
        gated = torch.nn.functional.silu(x @ part("mlp.gate_proj").T) * (x @ part("mlp.up_proj").T)
        return stream + gated @ part("mlp.down_proj").T

    def logits(self, rows: Any) -> Any:
        return self._norm(rows, "norm") @ self.parts["lm_head"].T

    def chain(self, tokens: Sequence[int], fused: Any, depth: int) -> tuple[list[int], Any]:
        """Greedy drafts after these tokens, and their rows. fused: of all tokens but the last."""
        text, before, drafts, chained = list(tokens[1:]), fused, list[int](), []
        for _ in range(depth):
            rows = self.rows(text, before)
            chained.append(rows[-1:])
            drafts.append(int(self.head.ids[int(self.logits(rows[-1:]).argmax())]))
            last = self._norm(rows[-1:], "norm") if self.head.flags.get("norm_output") else rows[-1:]
            text, before = [*text, drafts[-1]], torch.cat([before, last])
        return drafts, torch.cat(chained)

    def _attention(self, x: Any) -> Any:
        count, part = len(x), self._part
        queries, keys, values = (
            (x @ part(f"self_attn.{name}_proj").T).reshape(count, -1, LANES).swapaxes(0, 1) for name in "qkv"
        )
        if "midlayer.self_attn.q_norm" in self.parts:
            queries = self._norm(queries, "midlayer.self_attn.q_norm")
            keys = self._norm(keys, "midlayer.self_attn.k_norm")
        queries, keys = self._rotated(queries), self._rotated(keys)
        shared = self.head.heads // self.head.kv_heads
        keys, values = keys.repeat_interleave(shared, 0), values.repeat_interleave(shared, 0)
        scores = queries @ keys.swapaxes(1, 2) / LANES**0.5 + torch.full((count, count), -torch.inf).triu(1)
        out = (scores.softmax(-1) @ values).swapaxes(0, 1).reshape(count, -1)
        return out @ part("self_attn.o_proj").T

    def _rotated(self, heads: Any) -> Any:
        half = LANES // 2
        angles = torch.outer(torch.arange(heads.shape[1]).float(), THETA ** (-torch.arange(half) / half))
        first, second = heads[..., :half], heads[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _part(self, name: str) -> Any:
        return self.parts[f"midlayer.{name}"]

    def _norm(self, x: Any, name: str) -> Any:
        return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * self.parts[name]
