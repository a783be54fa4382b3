"""Checkpoint files: what they hold, checked before it is believed, and their tensors as integer weights."""

from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.gguf import GgufFile
from surefoot.weights.gguf_header import GgufError, TensorInfo
from surefoot.weights.hub import ModelNotFoundError, find_model
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from surefoot.weights.metadata import MetadataError
from surefoot.weights.opening import open_checkpoint
from surefoot.weights.packed_cache import fingerprint, packed_cache
from surefoot.weights.safetensors import SafetensorsError

__all__ = [
    "Checkpoint",
    "GgufError",
    "GgufFile",
    "HuggingFaceCheckpoint",
    "MetadataError",
    "ModelNotFoundError",
    "SafetensorsError",
    "TensorInfo",
    "find_model",
    "fingerprint",
    "open_checkpoint",
    "packed_cache",
]
