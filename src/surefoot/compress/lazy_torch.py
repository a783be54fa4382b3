"""torch, imported on first use: the command starts without it, and without it says what to install."""

import importlib
from typing import Any

from surefoot.compress.errors import CompressError

Tensor = Any  # torch.Tensor, where torch may not be installed


class _LazyTorch:
    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(importlib.import_module("torch"), name)
        except ImportError:
            raise CompressError("torch is not installed: pip install 'surefoot[compress]'") from None


torch: Any = _LazyTorch()
