"""Hunyuan without experts: Llama's layers, with queries and keys normed per head after they are rotated.

Long-context files raise RoPE's base by a power of a factor, alpha.
"""

from dataclasses import replace
from decimal import Decimal, localcontext

from surefoot.models.config import ModelConfig, lanes_of_head
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

DIGITS = 40


def from_gguf(checkpoint: Checkpoint, family: str = "hunyuan_v1_dense") -> ModelConfig:
    """GGUF files hold a base that has already been raised."""
    return gguf_config(checkpoint, family)


def from_hf(checkpoint: Checkpoint, family: str = "hunyuan_v1_dense") -> ModelConfig:
    hf = dict(checkpoint.metadata)
    rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    if (rope.get("rope_type") or rope.get("type")) == "dynamic" and rope.get("alpha"):
        theta = rope.get("rope_theta") or hf.get("rope_theta") or 10000.0
        lanes = hf.get("head_dim") or lanes_of_head(need(hf, "hidden_size"), need(hf, "num_attention_heads"))
        hf["rope_parameters"] = {"rope_theta": _raised(theta, rope["alpha"], lanes)}
    return hf_config(hf, family)


def _raised(theta: float, alpha: float, lanes: int) -> float:
    """theta * alpha ** (lanes / (lanes - 2)), in decimal arithmetic, which no machine's libm can change."""
    if lanes <= 2:
        raise MetadataError(f"rope type dynamic needs heads of more than 2 lanes, not of {lanes}: fetch it again")
    with localcontext() as context:
        context.prec = DIGITS
        return float(Decimal(theta) * Decimal(alpha) ** (Decimal(lanes) / (lanes - 2)))


def build(load: Loader) -> Model:
    return load.model(lambda i: load.layer(i, replace(load.attention(i), norms_rotated=True)))
