"""A model some of whose tensors are others, and how far it is from the model itself."""

from collections.abc import Mapping
from typing import Any

import torch

from surefoot.compress.forward import whole_forward


class Replaced:
    def __init__(self, checkpoint: Any, tensors: Mapping[str, Any]) -> None:
        self.metadata, self.tensors = checkpoint.metadata, {**checkpoint.tensors, **tensors}
        self._checkpoint, self._replaced = checkpoint, tensors

    def floats(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else self._checkpoint.floats(name)


def divergence(checkpoint: Any, tensors: Mapping[str, Any], windows: Any) -> float:
    """Mean KL of the model with these tensors from the model itself, in float; a window at a time."""
    other, found = Replaced(checkpoint, tensors), []
    for window in torch.tensor(windows).split(1):
        one, two = (torch.log_softmax(whole_forward(each, window).double(), -1) for each in (checkpoint, other))
        found.append((one.exp() * (one - two)).sum(-1).mean())
    return float(torch.stack(found).mean())
