"""torch, imported on first use: `--help` and refusals come before it."""

import importlib
from typing import Any

Tensor = Any  # torch.Tensor


class _LazyTorch:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


torch: Any = _LazyTorch()
