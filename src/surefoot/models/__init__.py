"""Model families as short Python over `ops`. A family's file is named as its Hugging Face model type; a family that is
Llama with other weights has none.

`load` builds the model of a checkpoint; `Model.forward` runs it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from surefoot.formats import SERVED, ModelFormat
from surefoot.models.config import ENCODERS, KvLayer, ModelConfig, SharedKv, StateLayer
from surefoot.models.decoder import WANTED, Model
from surefoot.models.drafting import DraftOutputs
from surefoot.models.eagle import EagleHead, with_head
from surefoot.models.eagle_load import load_eagle
from surefoot.models.llama import LlamaFamily, Pairing
from surefoot.models.load import Loader
from surefoot.models.medusa import MedusaHeads, load_medusa
from surefoot.models.not_run import NOT_RUN, why_not
from surefoot.models.shapes import check_shapes
from surefoot.models.step import Batch, KvRows, LayerMemory, Norm, empty_batch
from surefoot.models.workspace import Workspace
from surefoot.ops import Backend
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = [
    "ENCODERS",
    "FAMILIES",
    "WANTED",
    "Batch",
    "DraftOutputs",
    "EagleHead",
    "KvLayer",
    "KvRows",
    "LayerMemory",
    "MedusaHeads",
    "Model",
    "ModelConfig",
    "Norm",
    "SharedKv",
    "StateLayer",
    "Workspace",
    "check_supported",
    "empty_batch",
    "family_of",
    "load",
    "load_eagle",
    "load_medusa",
    "read_config",
    "with_head",
]

FAMILIES = (
    "bert", "deepseek_v2", "ernie4_5", "ernie4_5_moe", "exaone4", "gemma2", "gemma3", "gemma3n", "gemma4", "glm4_moe",
    "gpt_oss", "granite", "granitemoehybrid", "hunyuan_v1_dense", "hunyuan_v1_moe", "kimi_linear", "lfm2", "lfm2_moe",
    "llama", "llama4", "minimax_m2", "ministral3", "mistral4", "modernbert", "nemotron_h", "olmo2", "olmo3", "phi3",
    "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3",
)  # fmt: skip
# Families of Llama's layers without a file of their own, and the lanes that rotate together.
LLAMAS: dict[str, Pairing] = {"ernie4_5": "neighbours", "qwen2": "halves", "qwen3": "halves", "seed_oss": "halves"}
# Names in files that differ from the family's.
GGUF_NAMES = {
    "gemma-embedding": "gemma3",
    "lfm2moe": "lfm2_moe",
    "qwen35": "qwen3_5",
    "qwen35moe": "qwen3_5_moe",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v2",
    "deepseek32": "deepseek_v2",
    "deepseek4": "deepseek_v4",
    "ernie4_5-moe": "ernie4_5_moe",
    "glm-dsa": "deepseek_v2",
    "glm4moe": "glm4_moe",
    "glm5next": "glm5_next",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3_vl",
    "granitehybrid": "granitemoehybrid",
    "nemotron_h_moe": "nemotron_h",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe",
    "jina-bert-v2": "bert",
    "jina-bert-v3": "bert",
    "kimi-k3": "kimi_k3",
    "kimi-linear": "kimi_linear",
    "mistral3": "ministral3",
    "modern-bert": "modernbert",
    "nomic-bert": "bert",
    "qwen4exp": "qwen4_exp",
}
HF_NAMES = {
    "camembert": "bert",
    "deepseek_v3": "deepseek_v2",
    "deepseek_v32": "deepseek_v2",
    "glm4_moe_lite": "deepseek_v2",
    "glm5_next_text": "glm5_next",
    "glm_moe_dsa": "deepseek_v2",
    "gte": "bert",
    "jina_embeddings_v3": "bert",
    "kimi_k2": "deepseek_v2",
    "llama4_text": "llama4",
    "mistral": "llama",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "minimax_m3_vl_text": "minimax_m3_vl",
    "new": "bert",
    "nomic_bert": "bert",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "qwen4_exp_text": "qwen4_exp",
    "roberta": "bert",
    "xlm-roberta": "bert",
}


class Family(Protocol):
    """The interface of a family, most often a module."""

    def from_gguf(self, checkpoint: Checkpoint) -> ModelConfig: ...
    def from_hf(self, checkpoint: Checkpoint) -> ModelConfig: ...
    def build(self, load: Loader) -> Model: ...


def find_family(name: str) -> Family:
    if name in NOT_RUN:
        raise ValueError(why_not(name))
    if name not in FAMILIES:
        raise ValueError(f"the model family {name!r} is not supported; surefoot runs {', '.join(FAMILIES)}")
    if name in LLAMAS:
        return LlamaFamily(name, LLAMAS[name])
    return cast(Family, import_module(f"surefoot.models.{name}"))


def family_of(metadata: Mapping[str, Any]) -> str:
    """The family of a model: GGUF metadata name its architecture, config.json its model type."""
    architecture: str = metadata.get("general.architecture", "")
    if architecture:
        return GGUF_NAMES.get(architecture, architecture)
    kind: str = need(metadata, "model_type")
    if metadata.get("attn_res_block_size"):
        return "kimi_k3"  # whose text model's type is that of Kimi Linear
    return HF_NAMES.get(kind, kind)


def check_supported(metadata: Mapping[str, Any]) -> None:
    """Raises ValueError if no family can run models with this metadata. Reads nothing else, so a model can be refused
    before its weights are fetched."""
    if metadata:
        find_family(family_of(metadata))


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The config of the checkpoint's model."""
    family = find_family(family_of(checkpoint.metadata))
    is_gguf = "general.architecture" in checkpoint.metadata
    return family.from_gguf(checkpoint) if is_gguf else family.from_hf(checkpoint)


def load(backend: Backend, checkpoint: Checkpoint, fmt: ModelFormat = SERVED) -> Model:
    """The checkpoint's model."""
    config = read_config(checkpoint)
    check_shapes(config, checkpoint.tensors)
    return find_family(config.family).build(Loader(backend, checkpoint, config, fmt))
