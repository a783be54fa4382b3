"""A float32 forward pass in torch, one layer at a time, with a hook at every matrix.

For calibration, sensitivity and distillation. Dense families only: norm, grouped-query attention, gated feed-forward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.models import ModelConfig, read_config
from surefoot.ops.rope import RopeForm, attention_factor, inverse_frequencies
from surefoot.weights import Checkpoint
from surefoot_compress.errors import CompressError
from surefoot_compress.lazy_torch import Tensor, torch

FAMILIES = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
# A layer's matrices in groups that share their inputs.
GROUPS = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))
MATRICES = tuple(name for group in GROUPS for name in group)

LayerTensors = Mapping[str, Tensor]  # by GGUF names without "blk.N."
MatrixHook = Callable[[str, Tensor, Tensor], None]  # called with a matrix's name, its inputs and its outputs


def check_family(checkpoint: Checkpoint) -> ModelConfig:
    """The model's config; refuses families that this forward pass does not cover."""
    config = read_config(checkpoint)
    if config.family not in FAMILIES:
        raise CompressError(f"models of the family {config.family} cannot be compressed yet: use {', '.join(FAMILIES)}")
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
class RotaryEmbedding:
    """Rotary position embedding of positions 0 to n - 1."""

    form: RopeForm  # its dimensions, frequencies and pairing
    cos: Tensor  # [tokens, pairs]
    sin: Tensor  # [tokens, pairs]

    @classmethod
    def of(cls, form: RopeForm, num_tokens: int) -> "RotaryEmbedding":
        angles = np.outer(np.arange(num_tokens), inverse_frequencies(form).astype(np.float64))
        scale = attention_factor(form)
        cos, sin = (torch.from_numpy((scale * f(angles)).astype(np.float32)) for f in (np.cos, np.sin))
        return cls(form, cos, sin)

    def __call__(self, x: Tensor) -> Tensor:
        """The rotated heads, [..., heads, tokens, lanes]. Lanes beyond `form.dim` pass through."""
        rotated, rest = x[..., : self.form.dim], x[..., self.form.dim :]
        if self.form.pairing == "halves":
            first, second = rotated.chunk(2, dim=-1)
            parts = first * self.cos - second * self.sin, second * self.cos + first * self.sin
            return torch.cat([*parts, rest], dim=-1)
        first, second = rotated[..., 0::2], rotated[..., 1::2]
        parts = first * self.cos - second * self.sin, second * self.cos + first * self.sin
        return torch.cat([torch.stack(parts, dim=-1).flatten(-2), rest], dim=-1)


@dataclass(frozen=True)
class TorchForward:
    """The model's arithmetic without its weights. The residual stream `h` is [windows, tokens, width]."""

    config: ModelConfig  # of the model

    def embed(self, embeddings: Tensor, tokens: Tensor) -> Tensor:
        return embeddings[tokens] * self.config.embedding_scale

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        form = self.config.norm
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + form.eps) * (weight + form.weight_offset)

    def logits(self, h: Tensor, norm: Tensor, head: Tensor) -> Tensor:
        logits = self.norm(h, norm) @ head.T
        cap = self.config.logit_softcap
        return torch.tanh(logits / cap) * cap if cap else logits

    def layer(self, number: int, weights: LayerTensors, h: Tensor, hook: MatrixHook | None = None) -> Tensor:
        """The residual stream after the layer."""

        def project(name: str, x: Tensor) -> Tensor:
            y = torch.nn.functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
            if hook is not None:
                hook(name, x, y)
            return y

        def add(h: Tensor, delta: Tensor, after: str) -> Tensor:
            return h + (self.norm(delta, weights[after]) if after in weights else delta)

        x = self.norm(h, weights["attn_norm.weight"])
        queries, keys, values = (project(f"attn_{letter}", x) for letter in "qkv")
        attended = self._attend(number, weights, queries, keys, values)
        h = add(h, project("attn_output", attended), "post_attention_norm.weight")
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

    def _attend(self, number: int, weights: LayerTensors, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        kv, (num_windows, num_tokens, _) = self.config.kv(number), queries.shape

        def heads(x: Tensor, count: int, norm: str = "") -> Tensor:
            x = x.view(num_windows, num_tokens, count, -1)
            x = self.norm(x, weights[norm]) if norm in weights else x
            return x.transpose(1, 2)

        q = heads(queries, self.config.heads, "attn_q_norm.weight")
        k, v = heads(keys, kv.heads, "attn_k_norm.weight"), heads(values, kv.heads)
        if (form := self.config.layers[number].rope) is not None:
            rotate = RotaryEmbedding.of(form, num_tokens)
            q, k = rotate(q), rotate(k)
        per_kv_head = self.config.heads // kv.heads
        k, v = k.repeat_interleave(per_kv_head, dim=1), v.repeat_interleave(per_kv_head, dim=1)
        scores = (q @ k.transpose(-1, -2)) * self.config.scale
        if cap := self.config.attention_softcap:
            scores = torch.tanh(scores / cap) * cap
        attended = torch.softmax(scores + _mask(num_tokens, kv.window), dim=-1) @ v
        return attended.transpose(1, 2).reshape(num_windows, num_tokens, -1)


def _mask(num_tokens: int, window: int) -> Tensor:
    """Added to scores: minus infinity where a token must not attend, 0 elsewhere. A window of 0 is unlimited."""
    position = torch.arange(num_tokens)
    distance = position[:, None] - position[None, :]
    hidden = (distance < 0) | (distance >= window) if window else distance < 0
    return torch.zeros(num_tokens, num_tokens).masked_fill(hidden, -torch.inf)
