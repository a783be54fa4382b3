"""The config of a model: its sizes and forms, read from a checkpoint's metadata by its family's module."""

import math
from dataclasses import dataclass

from surefoot.ops import GluForm, NormForm, RopeForm, Router


@dataclass(frozen=True)
class KvLayer:
    """What a layer stores in the KV cache for each token."""

    heads: int  # of keys and values
    key_dim: int  # lanes of a head's key
    value_dim: int  # lanes of a head's value
    window: int = 0  # tokens that a token sees, itself included; 0: all before it


@dataclass(frozen=True)
class SharedKv:
    """A layer that stores nothing and reads the keys and values of an earlier layer."""

    layer: int  # the number of that layer


@dataclass(frozen=True)
class LayerConfig:
    """The config of one layer."""

    kv: KvLayer | SharedKv  # what the layer stores or reads
    rope: RopeForm | None  # None: positions are not encoded
    ffn: int = 0  # units of its feed-forward, where they are fewer than the model's; 0: as many


@dataclass(frozen=True)
class MoeConfig:
    """A mixture of experts."""

    router: Router  # how a token's experts are chosen
    num_dense: int = 0  # layers, the first, that have no experts


@dataclass(frozen=True)
class LatentConfig:
    """Latent attention: the keys and values of all heads come from one latent vector; the keys share lanes that
    rotate."""

    rank: int  # lanes of the latent vector
    plain_dim: int  # lanes of a head's key that do not rotate
    rope_dim: int  # lanes of the keys that rotate
    value_dim: int  # lanes of a head's value


@dataclass(frozen=True)
class QueryGrowth:
    """Queries grow with their position: they are multiplied by 1 + factor * ln(1 + position // period)."""

    factor: float  # 0.1 in the models known
    period: int  # tokens


@dataclass(frozen=True)
class ModelConfig:
    """All sizes and forms of a model."""

    family: str  # the name of its module in `models`
    vocab_size: int  # tokens
    width: int  # of the residual stream
    heads: int  # of queries
    ffn: int  # units of a feed-forward layer, at most
    context: int  # tokens, at most
    layers: tuple[LayerConfig, ...]  # in order
    norm: NormForm  # of all norms
    glu: GluForm  # the gated activation
    scale: float  # of attention logits
    attention_softcap: float = 0.0  # of attention logits; 0: none
    logit_softcap: float = 0.0  # of the model's logits; 0: none
    logit_scale: float = 1.0  # that the model's logits are multiplied by
    embedding_scale: float = 1.0  # that embeddings are multiplied by
    moe: MoeConfig | None = None  # of families with experts
    latent: LatentConfig | None = None  # of families with latent attention
    layer_lanes: int = 0  # of a token's embedding for each single layer; 0: tokens have none
    query_growth: QueryGrowth | None = None  # None: queries are as long at every position

    @property
    def windows(self) -> tuple[int, ...]:
        """The distinct windows: layers with the same window share a block table."""
        return tuple(sorted({self.kv(layer).window for layer in range(len(self.layers))}))

    def kv(self, layer: int) -> KvLayer:
        """The keys and values that the layer reads: its own, or those of an earlier layer."""
        kv = self.layers[layer].kv
        return self.kv(kv.layer) if isinstance(kv, SharedKv) else kv


def inverse_root(n: float) -> float:
    """n ** -0.5 in two IEEE operations, since libm's pow may differ in the last bit."""
    return 1.0 / math.sqrt(n)
