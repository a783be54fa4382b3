"""Jina's encoders (v2) in torch, after their published description: transformers has none of them."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.pooled import torch

safetensors = pytest.importorskip(
    "safetensors.torch", reason="safetensors is not installed: pip install -e '.[reference]'"
)

# What the configs have beside sizes. All say that they are BERTs.
KINDS: dict[str, dict[str, Any]] = {
    "jina": {"feed_forward_type": "geglu"},
    "jina_code": {"feed_forward_type": "geglu"},
    "jina_plain": {"feed_forward_type": "original"},
}
# Of the feed-forward: what reads, what writes, the norm behind.
FEED_FORWARD = {
    "jina": ("mlp.gated_layers", "mlp.wo", "mlp.layernorm"),
    "jina_code": ("mlp.up_gated_layer", "mlp.down_layer", "layer_norm_2"),
    "jina_plain": ("intermediate.dense", "output.dense", "output.LayerNorm"),
}


def slopes(heads: int) -> list[float]:
    """As ALiBi's paper has them: a geometric sequence that begins with its ratio and ends with 2^-8. For other numbers
    than powers of two, those of the power below, and every other one of twice as many."""
    power = 2 ** math.floor(math.log2(heads))
    of_power = [2 ** (-8 * number / power) for number in range(1, power + 1)]
    of_twice = [2 ** (-4 * number / power) for number in range(1, 2 * power + 1)]
    return of_power + of_twice[::2][: heads - power]


@dataclass(frozen=True)
class Jina:
    kind: str
    config: dict[str, Any]
    weights: dict[str, Any]

    def __call__(self, ids: Any) -> Any:
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type")]
        x = self._norm("embeddings.LayerNorm", tables[0][ids[0]] + tables[1][0])
        for number in range(self.config["num_hidden_layers"]):
            x = self._layer(f"encoder.layer.{number}.", x)
        return SimpleNamespace(last_hidden_state=x[None])

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        safetensors.save_file(self.weights, folder / "model.safetensors")

    def _layer(self, at: str, x: Any) -> Any:
        first, second, last_norm = (at + name for name in FEED_FORWARD[self.kind])
        out = self._linear(f"{at}attention.output.dense", self._attend(f"{at}attention.self.", x))
        attended = self._norm(f"{at}attention.output.LayerNorm", out + x)
        if self.kind == "jina_code":
            attended = self._norm(f"{at}layer_norm_1", attended + x)
        inner = self._linear(first, attended)
        if self.kind == "jina_plain":
            inner = torch.nn.functional.gelu(inner)
        else:
            halves = inner.chunk(2, dim=-1)
            values, gates = halves if self.kind == "jina_code" else halves[::-1]
            inner = values * torch.nn.functional.gelu(gates)
        return self._norm(last_norm, attended + self._linear(second, inner))

    def _attend(self, at: str, x: Any) -> Any:
        q, k, v = (self._linear(at + name, x) for name in ("query", "key", "value"))
        if self.kind == "jina_code":
            q, k = self._norm(f"{at}layer_norm_q", q), self._norm(f"{at}layer_norm_k", k)
        count = self.config["num_attention_heads"]
        q, k, v = (heads.reshape(len(x), count, -1).transpose(0, 1) for heads in (q, k, v))
        places = torch.arange(len(x))
        distances = (places - places[:, None]).abs()
        bias = -torch.tensor(slopes(count))[:, None, None] * distances
        p = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias, dim=-1)
        return (p @ v).transpose(0, 1).reshape(len(x), -1)

    def _linear(self, name: str, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _norm(self, name: str, x: Any) -> Any:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, self.config["layer_norm_eps"])


def make(kind: str, vocab_size: int, sizes: dict[str, Any]) -> Jina:
    """Of random weights."""
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    weights: dict[str, Any] = {}

    def matrix(name: str, rows: int, columns: int, *, bias: bool = True, size: float = 0.08) -> None:
        weights[f"{name}.weight"] = size * torch.randn(rows, columns)
        if bias:
            weights[f"{name}.bias"] = 0.1 * torch.randn(rows)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = 1 + 0.1 * torch.randn(width)
        weights[f"{name}.bias"] = 0.1 * torch.randn(width)

    matrix("embeddings.word_embeddings", vocab_size, width, bias=False)
    matrix("embeddings.token_type_embeddings", 2, width, bias=False)
    norm("embeddings.LayerNorm")
    for number in range(sizes["num_hidden_layers"]):
        at = f"encoder.layer.{number}."
        first, second, last_norm = (at + name for name in FEED_FORWARD[kind])
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            matrix(f"{at}attention.{name}", width, width)
        gated = kind != "jina_plain"
        matrix(first, 2 * inner if gated else inner, width, bias=not gated)
        matrix(second, width, inner)
        norm(f"{at}attention.output.LayerNorm")
        norm(last_norm)
        if kind == "jina_code":
            for name in ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1"):
                norm(at + name)
    config = {
        **sizes, **KINDS[kind], "model_type": "bert", "vocab_size": vocab_size, "position_embedding_type": "alibi",
        "hidden_act": "gelu", "type_vocab_size": 2, "pad_token_id": 0, "architectures": ["JinaBertForMaskedLM"],
    }  # fmt: skip
    return Jina(kind, config, weights)
