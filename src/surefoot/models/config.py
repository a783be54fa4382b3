"""What a model is: its sizes and forms, read from a checkpoint's metadata by its family's file."""

import math
from dataclasses import dataclass

from surefoot.ops import GluForm, NormForm, RopeForm, Router


@dataclass(frozen=True)
class KvLayer:
    """What a layer keeps of each token. window: how many tokens a token sees, itself included (0: all before it)."""

    heads: int
    key_dim: int
    value_dim: int
    window: int = 0


@dataclass(frozen=True)
class SharedKv:
    """A layer that keeps nothing and reads what `layer`, before it, has kept."""

    layer: int


@dataclass(frozen=True)
class LayerConfig:
    kv: KvLayer | SharedKv
    rope: RopeForm | None


@dataclass(frozen=True)
class MoeConfig:
    """The first `num_dense` layers have no experts."""

    router: Router
    num_dense: int = 0


@dataclass(frozen=True)
class LatentConfig:
    """Keys and values of all heads come from one latent vector of `rank`; the keys also share a part that rotates."""

    rank: int
    plain_dim: int  # a head's lanes that do not rotate
    rope_dim: int
    value_dim: int


@dataclass(frozen=True)
class ModelConfig:
    """`scale` multiplies attention logits; a cap of 0 is none."""

    family: str
    vocab_size: int
    width: int
    heads: int
    ffn: int
    context: int
    layers: tuple[LayerConfig, ...]
    norm: NormForm
    glu: GluForm
    scale: float
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    moe: MoeConfig | None = None
    latent: LatentConfig | None = None

    @property
    def windows(self) -> tuple[int, ...]:
        """The different windows: layers of one window can share a block table."""
        return tuple(sorted({self.kv(layer).window for layer in range(len(self.layers))}))

    def kv(self, layer: int) -> KvLayer:
        """What the layer reads: its own, or what another keeps."""
        kv = self.layers[layer].kv
        return self.kv(kv.layer) if isinstance(kv, SharedKv) else kv


def inverse_root(n: float) -> float:
    """n ** -0.5 in two IEEE operations, since libm's pow may differ in the last bit."""
    return 1.0 / math.sqrt(n)
