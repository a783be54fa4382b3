"""Llama 2 and 3, SmolLM, TinyLlama, Mistral: norm, attention, norm, gated feed-forward."""

from dataclasses import dataclass, replace
from typing import Literal

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint

Pairing = Literal["halves", "neighbours"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF's llama files order the rows of queries and keys differently from Hugging Face's: lanes that rotate together
    are adjacent."""
    window = Gguf(checkpoint).get("attention.sliding_window", 0)

    def layer(_: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, window=window), rope)

    return gguf_config(checkpoint, "llama", "neighbours", layer)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return hf_config(checkpoint.metadata, "llama")


def build(load: Loader) -> Model:
    return load.model(load.layer)


@dataclass(frozen=True)
class LlamaFamily:
    """A family of Llama's layers without a file of its own: its checkpoints have all in which it differs, such as
    biases, or norms of queries and keys."""

    name: str
    pairing: Pairing  # lanes that rotate together, in all of its files

    def from_gguf(self, checkpoint: Checkpoint) -> ModelConfig:
        return gguf_config(checkpoint, self.name, self.pairing)

    def from_hf(self, checkpoint: Checkpoint) -> ModelConfig:
        return hf_config(checkpoint.metadata, self.name, self.pairing)

    def build(self, load: Loader) -> Model:
        return build(load)
