"""Model families as short Python over `ops`. A family's file is named as its Hugging Face model type.

`load` builds the model of a checkpoint; `Model.forward` runs it.
"""

from importlib import import_module
from typing import Protocol, cast

from surefoot.formats import SERVED, ModelFormat
from surefoot.models.config import KvLayer, ModelConfig, SharedKv, StateLayer
from surefoot.models.decoder import WANTED, Model
from surefoot.models.load import Loader
from surefoot.models.shapes import check_shapes
from surefoot.models.step import Batch, KvRows, LayerMemory, empty_batch
from surefoot.models.traffic import decode_bytes, linear_products, row_context
from surefoot.models.workspace import Workspace
from surefoot.ops import Backend
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = [
    "FAMILIES",
    "WANTED",
    "Batch",
    "KvLayer",
    "KvRows",
    "LayerMemory",
    "Model",
    "ModelConfig",
    "SharedKv",
    "StateLayer",
    "Workspace",
    "decode_bytes",
    "empty_batch",
    "linear_products",
    "load",
    "read_config",
    "row_context",
]

FAMILIES = (
    "deepseek_v2", "ernie4_5", "exaone4", "gemma2", "gemma3", "gemma4", "gpt_oss", "granite", "hunyuan_v1_dense",
    "lfm2", "llama", "ministral3", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_5", "qwen3_moe", "seed_oss",
    "smollm3",
)  # fmt: skip
# Names in files that differ from the family's.
GGUF_NAMES = {
    "qwen35": "qwen3_5",
    "qwen3moe": "qwen3_moe",
    "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v2",
    "hunyuan-dense": "hunyuan_v1_dense",
    "mistral3": "ministral3",
}
HF_NAMES = {"mistral": "llama", "gemma3_text": "gemma3", "gemma4_text": "gemma4", "qwen3_5_text": "qwen3_5"}


class Family(Protocol):
    """The interface of a family's module."""

    @staticmethod
    def from_gguf(checkpoint: Checkpoint) -> ModelConfig: ...
    @staticmethod
    def from_hf(checkpoint: Checkpoint) -> ModelConfig: ...
    @staticmethod
    def build(load: Loader) -> Model: ...


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"the model family {name!r} is not supported; surefoot runs {', '.join(FAMILIES)}")
    return cast(Family, import_module(f"surefoot.models.{name}"))


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The config of the checkpoint's model. GGUF metadata name its architecture, config.json its model type."""
    if architecture := checkpoint.metadata.get("general.architecture"):
        return find_family(GGUF_NAMES.get(architecture, architecture)).from_gguf(checkpoint)
    kind = need(checkpoint.metadata, "model_type")
    return find_family(HF_NAMES.get(kind, kind)).from_hf(checkpoint)


def load(backend: Backend, checkpoint: Checkpoint, fmt: ModelFormat = SERVED) -> Model:
    """The checkpoint's model."""
    config = read_config(checkpoint)
    check_shapes(config, checkpoint.tensors)
    return find_family(config.family).build(Loader(backend, checkpoint, config, fmt))
