"""Seed-OSS: Llama's layers, with biases on queries, keys and values."""

from surefoot.models.config import ModelConfig
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return gguf_config(checkpoint, "seed_oss")


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return hf_config(checkpoint.metadata, "seed_oss")
