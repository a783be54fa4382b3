"""A model with some tensors replaced, and its divergence from the original."""

from collections.abc import Mapping
from typing import Any

import torch

from surefoot_compress.forward import TorchForward, as_tensor, check_family, head_name, layer_weights


class Replaced:
    def __init__(self, checkpoint: Any, tensors: Mapping[str, Any]) -> None:
        self.metadata, self.tensors = checkpoint.metadata, {**checkpoint.tensors, **tensors}
        self._checkpoint, self._replaced = checkpoint, tensors

    def floats(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else self._checkpoint.floats(name)


def divergence(checkpoint: Any, tensors: Mapping[str, Any], windows: Any) -> float:
    """Mean KL of the model with these tensors replaced from the original, in float32, one window at a time."""
    other, divergences = Replaced(checkpoint, tensors), []
    for window in torch.tensor(windows).split(1):
        p, q = (torch.log_softmax(full_forward(model, window).double(), -1) for model in (checkpoint, other))
        divergences.append((p.exp() * (p - q)).sum(-1).mean())
    return float(torch.stack(divergences).mean())


def full_forward(checkpoint: Any, tokens: Any) -> Any:
    """Logits of windows of tokens, from a whole model in memory."""
    config = check_family(checkpoint)
    forward = TorchForward(config)
    with torch.no_grad():
        h = forward.embed(as_tensor(checkpoint, "token_embd.weight"), tokens)
        for number in range(len(config.layers)):
            h = forward.layer(number, layer_weights(checkpoint, number), h)
        return forward.logits(
            h, as_tensor(checkpoint, "output_norm.weight"), as_tensor(checkpoint, head_name(checkpoint))
        )
