"""Checkpoint files: what they hold, checked before it is believed, and their tensors as integer weights."""

from surefoot.weights.gguf import GgufError, GgufFile, TensorInfo

__all__ = ["GgufError", "GgufFile", "TensorInfo"]
