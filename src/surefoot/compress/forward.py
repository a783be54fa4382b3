"""A float32 forward in torch over a checkpoint's own tensors: one layer at a time, with a tap at every matrix.

For calibration, sensitivity and distillation. Dense families alone: norm, grouped-query attention, gated feed-forward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.compress.later import CompressError, Tensor, torch
from surefoot.models import ModelConfig, read_config
from surefoot.ops.rope import RopeForm, attention_factor, inverse_frequencies
from surefoot.weights import Checkpoint

FAMILIES = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
# A layer's matrices by what they read: the members of a group share their inputs.
GROUPS = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))
MATRICES = tuple(name for group in GROUPS for name in group)

Weights = Mapping[str, Tensor]  # of a layer, by GGUF names without "blk.N."
Tap = Callable[[str, Tensor, Tensor], None]  # a matrix's name, its inputs and outputs


def check_family(checkpoint: Checkpoint) -> ModelConfig:
    config = read_config(checkpoint)
    if config.family not in FAMILIES:
        raise CompressError(f"models of the family {config.family} are not compressed yet: {', '.join(FAMILIES)} are")
    return config


def layer_weights(checkpoint: Checkpoint, layer: int) -> dict[str, Tensor]:
    start = f"blk.{layer}."
    names = [name for name in checkpoint.tensors if name.startswith(start)]
    return {name.removeprefix(start): as_tensor(checkpoint, name) for name in names}


def as_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    return torch.from_numpy(np.array(checkpoint.floats(name), np.float32, order="C"))


def head_name(checkpoint: Checkpoint) -> str:
    return "output.weight" if "output.weight" in checkpoint.tensors else "token_embd.weight"


@dataclass(frozen=True)
class Rotation:
    """cos and sin of the positions, [tokens, pairs]."""

    form: RopeForm
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, form: RopeForm, num_tokens: int) -> "Rotation":
        angles = np.outer(np.arange(num_tokens), inverse_frequencies(form).astype(np.float64))
        scale = attention_factor(form)
        cos, sin = (torch.from_numpy((scale * f(angles)).astype(np.float32)) for f in (np.cos, np.sin))
        return cls(form, cos, sin)

    def __call__(self, x: Tensor) -> Tensor:
        """Heads [..., heads, tokens, lanes]; lanes beyond the form's stay."""
        turned, rest = x[..., : self.form.dim], x[..., self.form.dim :]
        if self.form.pairing == "halves":
            first, second = turned.chunk(2, dim=-1)
            parts = first * self.cos - second * self.sin, second * self.cos + first * self.sin
            return torch.cat([*parts, rest], dim=-1)
        first, second = turned[..., 0::2], turned[..., 1::2]
        parts = first * self.cos - second * self.sin, second * self.cos + first * self.sin
        return torch.cat([torch.stack(parts, dim=-1).flatten(-2), rest], dim=-1)


@dataclass(frozen=True)
class Forward:
    """The model's arithmetic, without its weights. The stream is [windows, tokens, width]."""

    config: ModelConfig

    def embed(self, embeddings: Tensor, tokens: Tensor) -> Tensor:
        return embeddings[tokens] * self.config.embedding_scale

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        form = self.config.norm
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + form.eps) * (weight + form.weight_offset)

    def logits(self, h: Tensor, norm: Tensor, head: Tensor) -> Tensor:
        logits = self.norm(h, norm) @ head.T
        cap = self.config.logit_softcap
        return torch.tanh(logits / cap) * cap if cap else logits

    def layer(self, number: int, weights: Weights, h: Tensor, tap: Tap | None = None) -> Tensor:
        """The stream after the layer."""

        def project(name: str, x: Tensor) -> Tensor:
            y = torch.nn.functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
            if tap is not None:
                tap(name, x, y)
            return y

        def add(h: Tensor, delta: Tensor, after: str) -> Tensor:
            return h + (self.norm(delta, weights[after]) if after in weights else delta)

        x = self.norm(h, weights["attn_norm.weight"])
        queries, keys, values = (project(f"attn_{one}", x) for one in "qkv")
        seen = self._attend(number, weights, queries, keys, values)
        h = add(h, project("attn_output", seen), "post_attention_norm.weight")
        x = self.norm(h, weights["ffn_norm.weight"])
        gated = self._activate(project("ffn_gate", x)) * project("ffn_up", x)
        return add(h, project("ffn_down", gated), "post_ffw_norm.weight")

    def _activate(self, x: Tensor) -> Tensor:
        functional = torch.nn.functional
        match self.config.glu.kind:
            case "silu":
                return functional.silu(x)
            case "gelu_tanh":
                return functional.gelu(x, approximate="tanh")
        return functional.gelu(x)

    def _attend(self, number: int, weights: Weights, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        kv, (num_windows, num_tokens, _) = self.config.kv(number), queries.shape

        def heads(x: Tensor, count: int, normed: str = "") -> Tensor:
            x = x.view(num_windows, num_tokens, count, -1)
            x = self.norm(x, weights[normed]) if normed in weights else x
            return x.transpose(1, 2)

        q = heads(queries, self.config.heads, "attn_q_norm.weight")
        k, v = heads(keys, kv.heads, "attn_k_norm.weight"), heads(values, kv.heads)
        if (form := self.config.layers[number].rope) is not None:
            rotate = Rotation.of(form, num_tokens)
            q, k = rotate(q), rotate(k)
        times = self.config.heads // kv.heads
        k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
        scores = (q @ k.transpose(-1, -2)) * self.config.scale
        if cap := self.config.attention_softcap:
            scores = torch.tanh(scores / cap) * cap
        seen = torch.softmax(scores + _mask(num_tokens, kv.window), dim=-1) @ v
        return seen.transpose(1, 2).reshape(num_windows, num_tokens, -1)


def _mask(num_tokens: int, window: int) -> Tensor:
    """Minus infinity where a token does not look."""
    place = torch.arange(num_tokens)
    ago = place[:, None] - place[None, :]
    hidden = (ago < 0) | (ago >= window) if window else ago < 0
    return torch.zeros(num_tokens, num_tokens).masked_fill(hidden, -torch.inf)


def whole_forward(checkpoint: Checkpoint, tokens: Tensor) -> Tensor:
    """Logits of windows of tokens: what the parts make together, for small models and tests."""
    config = check_family(checkpoint)
    forward = Forward(config)
    with torch.no_grad():
        h = forward.embed(as_tensor(checkpoint, "token_embd.weight"), tokens)
        for number in range(len(config.layers)):
            h = forward.layer(number, layer_weights(checkpoint, number), h)
        return forward.logits(
            h, as_tensor(checkpoint, "output_norm.weight"), as_tensor(checkpoint, head_name(checkpoint))
        )
