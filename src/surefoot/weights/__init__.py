"""Reads checkpoint files: their metadata and tensors, checked before use, and the tensors as integer weights."""

from surefoot.weights.checkpoint import Checkpoint, Report, ReportingCheckpoint
from surefoot.weights.eagle import is_eagle, is_eagle_config, open_eagle
from surefoot.weights.file_digests import BackgroundHash, ModelDigests, hash_in_background, hash_model
from surefoot.weights.gguf import GgufFile
from surefoot.weights.gguf_header import GgufError
from surefoot.weights.hub import ModelNotFoundError, find_headers, find_model
from surefoot.weights.huggingface import HuggingFaceCheckpoint, open_checkpoint
from surefoot.weights.medusa import is_medusa, is_medusa_config, open_medusa
from surefoot.weights.metadata import MetadataError
from surefoot.weights.packed_cache import (
    PackedCache,
    bytes_on_disk,
    default_cache,
    fingerprint,
    packed_cache,
    writing_beside,
)
from surefoot.weights.safetensors import SafetensorsError

__all__ = [
    "BackgroundHash",
    "Checkpoint",
    "GgufError",
    "GgufFile",
    "HuggingFaceCheckpoint",
    "MetadataError",
    "ModelDigests",
    "ModelNotFoundError",
    "PackedCache",
    "Report",
    "ReportingCheckpoint",
    "SafetensorsError",
    "bytes_on_disk",
    "default_cache",
    "find_headers",
    "find_model",
    "fingerprint",
    "hash_in_background",
    "hash_model",
    "is_eagle",
    "is_eagle_config",
    "is_medusa",
    "is_medusa_config",
    "open_checkpoint",
    "open_eagle",
    "open_medusa",
    "packed_cache",
    "writing_beside",
]
