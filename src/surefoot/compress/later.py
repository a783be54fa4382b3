"""torch, imported when it is first used, so that the command starts without it and says what to install."""

import importlib
from typing import Any

Tensor = Any  # torch.Tensor, where torch may not be installed


class CompressError(ValueError):
    """What cannot be done, and what to do instead."""


class _Later:
    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(importlib.import_module("torch"), name)
        except ImportError:
            raise CompressError("torch is not installed: pip install 'surefoot[compress]'") from None


torch: Any = _Later()
