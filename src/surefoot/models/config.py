"""The config of a model: its sizes and forms, read from a checkpoint's metadata by its family's module."""

import math
from dataclasses import dataclass, replace

from surefoot.ops import GluForm, NormForm, RopeForm, Router
from surefoot.weights.metadata import MetadataError

ENCODERS = ("bert", "modernbert")  # families that generate nothing: their tokens see later ones


@dataclass(frozen=True)
class KvLayer:
    """What a layer stores in the KV cache for each token."""

    heads: int  # of keys and values
    key_dim: int  # lanes of a head's key
    value_dim: int  # lanes of a head's value
    window: int = 0  # tokens that a token sees, itself included; 0: all before it
    fixed: bool = False  # windows stand side by side from position 0 on: a token sees those of its own up to itself


@dataclass(frozen=True)
class SharedKv:
    """A layer that stores nothing and reads the keys and values of an earlier layer."""

    layer: int  # the number of that layer


@dataclass(frozen=True)
class StateLayer:
    """What a layer keeps of a request instead of keys and values: float32 arrays of a fixed size."""

    shapes: tuple[tuple[int, ...], ...]  # of the arrays; none: the layer keeps nothing

    @property
    def nbytes(self) -> int:
        return sum(4 * math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True)
class LayerConfig:
    """The config of one layer."""

    kv: KvLayer | SharedKv | StateLayer  # what the layer stores or reads
    rope: RopeForm | None  # None: positions are not encoded
    ffn: int = 0  # units of its feed-forward, where they are fewer than the model's; 0: as many


@dataclass(frozen=True)
class MoeConfig:
    """A mixture of experts."""

    router: Router  # how a token's experts are chosen
    num_dense: int = 0  # layers, the first, that have no experts
    every: int = 1  # of the later layers, each whose number (from 1) is a multiple of this has experts
    shared: bool = False  # every token goes through a feed-forward beside the experts too

    def has_experts(self, layer: int) -> bool:
        return layer >= self.num_dense and (layer + 1) % self.every == 0


@dataclass(frozen=True)
class LatentConfig:
    """Latent attention: the keys and values of all heads come from one latent vector; the keys share lanes that
    rotate."""

    rank: int  # lanes of the latent vector
    plain_dim: int  # lanes of a head's key that do not rotate
    rope_dim: int  # lanes of the keys that rotate
    value_dim: int  # lanes of a head's value


@dataclass(frozen=True)
class DeltaConfig:
    """Layers of the gated delta rule."""

    key_heads: int  # of queries and keys
    heads: int  # of values: a multiple
    key_dim: int  # lanes of a head's query and key
    value_dim: int  # lanes of a head's value
    num_taps: int  # of the convolution before
    tiled: bool = False  # head h reads key head h % key_heads; else neighbours share one
    by_lane: bool = False  # each lane of the keys fades at a rate of its own; else all of a head's at one

    @property
    def conv_width(self) -> int:
        """Queries, keys and values together."""
        return 2 * self.key_heads * self.key_dim + self.heads * self.value_dim


@dataclass(frozen=True)
class ScanConfig:
    """Layers of Mamba-2's scan."""

    heads: int  # of what is scanned
    head_dim: int  # lanes of a head
    groups: int  # of heads that share how they are written and read
    state_dim: int  # lanes of a group: the rows of a head's state
    num_taps: int  # of the convolution before
    norm_groups: int  # of columns that are normed by themselves
    norm_eps: float  # of that norm

    @property
    def inner(self) -> int:
        """Lanes of all heads."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """What is scanned, and both vectors of each group."""
        return self.inner + 2 * self.groups * self.state_dim


@dataclass(frozen=True)
class StreamsConfig:
    """Several residual streams, of which layers work on the first and change all."""

    count: int  # of streams
    spreads: tuple[float | None, ...]  # by layer: gates kept are this many deviations above their mean; None: all
    scales: bool = True  # what reads the first stream after a layer scales its lanes


@dataclass(frozen=True)
class QueryGrowth:
    """Queries grow with their position: they are multiplied by 1 + factor * ln(1 + (position + offset) // period)."""

    factor: float  # 0.1 in the models known
    period: int  # tokens
    offset: int = 0  # tokens


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
    alibi: bool = False  # attention logits fall with the distance, each head's at a slope of its own
    logit_softcap: float = 0.0  # of the model's logits; 0: none
    logit_scale: float = 1.0  # that the model's logits are multiplied by
    embedding_scale: float = 1.0  # that embeddings are multiplied by
    moe: MoeConfig | None = None  # of families with experts
    latent: LatentConfig | None = None  # of families with latent attention
    delta: DeltaConfig | None = None  # of families with the gated delta rule
    scan: ScanConfig | None = None  # of families with Mamba-2's scan
    streams: StreamsConfig | None = None  # of families with several residual streams
    num_unused: int = 0  # layers at the file's end that only draft
    drafting_layers: tuple[LayerConfig, ...] = ()  # what the layer that drafts keeps: keys and values, the row before
    layer_lanes: int = 0  # of a token's embedding for each single layer; 0: tokens have none
    query_growth: QueryGrowth | None = None  # None: queries are as long at every position
    norms_rotated: bool = False  # queries and keys that rotate are normed per head afterwards, without weights
    sees_ahead: bool = False  # tokens see later ones, as many as before them: a prompt is computed in one chunk
    takes_two_texts: bool = False  # ids from vocab_size on are the same tokens, in the second text of a pair

    @property
    def kept_layers(self) -> tuple[LayerConfig, ...]:
        """All that keep something of a request. The layer that drafts comes after the others."""
        return self.layers + self.drafting_layers

    @property
    def num_ids(self) -> int:
        """Ids that a prompt may have: below this number."""
        return self.vocab_size * (2 if self.takes_two_texts else 1)

    @property
    def windows(self) -> tuple[int, ...]:
        """The distinct windows: layers with the same window share a block table."""
        return tuple(sorted({self.kv(layer).window for layer in self.attention_layers}))

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The numbers of the layers that read keys and values."""
        return tuple(i for i, layer in enumerate(self.kept_layers) if not isinstance(layer.kv, StateLayer))

    @property
    def states(self) -> dict[int, StateLayer]:
        """What layers keep as states, by the layer's number."""
        by_layer = {i: layer.kv for i, layer in enumerate(self.kept_layers) if isinstance(layer.kv, StateLayer)}
        return {i: state for i, state in by_layer.items() if state.shapes}

    @property
    def state_bytes(self) -> int:
        """The states of one request, in all layers."""
        return sum(state.nbytes for state in self.states.values())

    def kv(self, layer: int) -> KvLayer:
        """The keys and values that the layer reads: its own, or those of an earlier layer."""
        kv = self.kept_layers[layer].kv
        if isinstance(kv, StateLayer):
            raise ValueError(f"layer {layer} keeps a state, no keys and values")
        return self.kv(kv.layer) if isinstance(kv, SharedKv) else kv


def without_last(config: ModelConfig, count: int) -> ModelConfig:
    """The last layers in the file only draft."""
    return replace(config, layers=config.layers[: len(config.layers) - count], num_unused=count)


def half_window(both: int) -> int:
    """The tokens that a token sees up to itself, of a window that lies on both sides of it."""
    return both // 2 + 1


def inverse_root(n: float) -> float:
    """n ** -0.5 in two IEEE operations, since libm's pow may differ in the last bit."""
    return 1.0 / math.sqrt(n)


def lanes_of_head(total: int, heads: int) -> int:
    """The lanes of each head, which the file states for all heads together."""
    if total < heads:
        raise MetadataError(f"{heads} heads share {total} lanes, less than one each: fetch or convert the file again")
    return total // heads
