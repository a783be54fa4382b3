"""Checkpoint files: what they hold, checked before it is believed, and their tensors as integer weights."""

from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.gguf import GgufFile
from surefoot.weights.gguf_header import GgufError, TensorInfo
from surefoot.weights.hub import ModelNotFoundError, find_model
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from surefoot.weights.metadata import MetadataError
from surefoot.weights.opening import open_checkpoint
from surefoot.weights.packed_cache import PackedCache, default_cache, fingerprint, packed_cache
from surefoot.weights.reporting import Report, ReportingCheckpoint
from surefoot.weights.safetensors import SafetensorsError

__all__ = [
    "Checkpoint",
    "GgufError",
    "GgufFile",
    "HuggingFaceCheckpoint",
    "MetadataError",
    "ModelNotFoundError",
    "PackedCache",
    "Report",
    "ReportingCheckpoint",
    "SafetensorsError",
    "TensorInfo",
    "default_cache",
    "find_model",
    "fingerprint",
    "open_checkpoint",
    "packed_cache",
]
