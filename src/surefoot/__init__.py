"""surefoot: LLM inference and serving for machines without a GPU."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded when first asked for: `import surefoot` stays quick, and needs nothing but the standard library.
_LAZY = {"LLM": "surefoot.api", "SamplingParams": "surefoot.core"}
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
