"""Reads a model's config from GGUF metadata, as far as families have it in common."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, ScanConfig, inverse_root, lanes_of_head
from surefoot.ops import FactorScaling, GluForm, LinearScaling, NormForm, RopeForm, YarnScaling
from surefoot.ops.rope import Scaling
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import GGUF_RULES, MetadataError


class Gguf:
    """The metadata of the model's architecture, by keys without its prefix."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._prefix = checkpoint.metadata["general.architecture"]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key. The key must be in the table of weights/metadata.py, so that its value was checked."""
        if key not in GGUF_RULES:
            raise KeyError(f"{key} is read, but has no rule in weights/metadata.py")
        return self.checkpoint.metadata.get(f"{self._prefix}.{key}", default)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ValueError(f"the file lacks {self._prefix}.{key}; convert it again with a recent llama.cpp")
        return value

    def by_layer(self, key: str) -> list[int]:
        """A number for each layer, of which the file has one for all or a list."""
        count, value = self.need("block_count"), self.need(key)
        if isinstance(value, int):
            return [value] * count
        if len(value) < count:
            raise MetadataError(f"{key} lists {len(value)} layers of {count}")
        return [int(number) for number in value[:count]]

    def slides(self, every: int) -> list[bool]:
        """Whether each layer has a window: as the file lists them, or all but each `pattern`-th (`every`-th if it does
        not say)."""
        count, pattern = self.need("block_count"), self.get("attention.sliding_window_pattern", every)
        if isinstance(pattern, int):
            return [(i + 1) % pattern != 0 for i in range(count)]
        if len(pattern) < count:
            raise MetadataError(f"attention.sliding_window_pattern lists {len(pattern)} layers of {count}")
        return [bool(flag) for flag in pattern[:count]]

    def norm_eps(self) -> float:
        """Some files have the epsilon of RMSNorm under LayerNorm's name."""
        eps = self.get("attention.layer_norm_rms_epsilon") or self.get("attention.layer_norm_epsilon")
        return float(eps or self.need("attention.layer_norm_rms_epsilon"))

    def ffn(self) -> int:
        """Units of a feed-forward layer, at most; of an expert, where all layers have experts."""
        units = self.get("feed_forward_length", self.get("expert_feed_forward_length"))
        return int(np.max(self.need("feed_forward_length") if units is None else units))

    def kv_heads(self) -> list[int]:
        """Heads of keys and values by layer; 0: the layer has none. Without a list, all layers have them."""
        count, value = self.need("block_count"), self.need("attention.head_count_kv")
        if isinstance(value, int):
            return [value] * count
        if len(value) != count:
            raise MetadataError(f"{len(value)} counts of heads for {count} layers: convert it again")
        return [int(number) for number in value]

    def scan(self, norm_eps: float) -> ScanConfig:
        """The sizes of Mamba-2's scan, whose outputs are normed group by group."""
        heads, groups = self.need("ssm.time_step_rank"), self.need("ssm.group_count")
        return ScanConfig(
            heads, lanes_of_head(self.need("ssm.inner_size"), heads), groups, self.need("ssm.state_size"),
            self.need("ssm.conv_kernel"), groups, norm_eps,
        )  # fmt: skip

    def rope(self, dim: int, pairing: Literal["halves", "neighbours"]) -> RopeForm:
        dim = self.get("rope.dimension_count", dim)
        return RopeForm(dim, self.get("rope.freq_base", 10000.0), self._scaling(), pairing)

    def _scaling(self) -> Scaling | None:
        if "rope_freqs.weight" in self.checkpoint.tensors:
            return FactorScaling(tuple(map(float, self.checkpoint.floats("rope_freqs.weight"))))
        kind, factor = self.get("rope.scaling.type", "none"), self.get("rope.scaling.factor") or 1.0
        if kind == "yarn":
            return YarnScaling(
                factor, self.need("rope.scaling.original_context_length"),
                self.get("rope.scaling.yarn_beta_fast", 32.0), self.get("rope.scaling.yarn_beta_slow", 1.0),
            )  # fmt: skip
        if kind == "linear" or (kind == "none" and factor != 1.0):
            return LinearScaling(factor)
        if kind not in ("none", "longrope"):
            raise ValueError(f"rope scaling {kind!r} is not supported")
        return None


def _num_embeddings(checkpoint: Checkpoint) -> int:
    embeddings = checkpoint.tensors.get("token_embd.weight")
    if embeddings is None:
        raise MetadataError("the file has no tensor token_embd.weight: it holds no model, or a part of one")
    return embeddings.shape[0]


def gguf_config(
    checkpoint: Checkpoint,
    family: str,
    pairing: Literal["halves", "neighbours"] = "halves",
    layer: Callable[[int, KvLayer, RopeForm], LayerConfig] | None = None,
    vocab_size: int | None = None,
) -> ModelConfig:
    """The config of a model of grouped-query attention and gated feed-forward layers. `layer` may make layers differ.
    vocab_size: of a file without embeddings."""
    gguf = Gguf(checkpoint)
    width, heads = gguf.need("embedding_length"), gguf.need("attention.head_count")
    kv_heads = int(np.max(gguf.get("attention.head_count_kv", heads)))  # some files give one number per layer
    head_dim = gguf.get("attention.key_length") or lanes_of_head(width, heads)
    kv = KvLayer(kv_heads, head_dim, gguf.get("attention.value_length", head_dim))
    rope = gguf.rope(head_dim, pairing)
    return ModelConfig(
        family=family,
        vocab_size=vocab_size or _num_embeddings(checkpoint),
        width=width,
        heads=heads,
        ffn=gguf.ffn(),
        context=gguf.need("context_length"),
        layers=tuple(layer(i, kv, rope) if layer else LayerConfig(kv, rope) for i in range(gguf.need("block_count"))),
        norm=NormForm("rms", gguf.norm_eps()),
        glu=GluForm("silu"),
        scale=inverse_root(head_dim),
    )
