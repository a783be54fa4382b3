"""What memory allows: the context, and the blocks of keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surefoot import machine
from surefoot.kv import KvKind, KvLayout, LayerKv, make_layout
from surefoot.models import KvLayer, Model, ModelConfig, row_context
from surefoot.scheduler import SchedulerConfig

SHARE_OF_MEMORY = 0.8  # of what is left: Python and other processes need the rest
LEAST_CONTEXT = 64  # tokens; less is only taken if it is asked for
BLOCK_SIZE = 16
TYPICAL_TOKENS = 2048  # of a request: blocks are divided among groups of layers so that these fill all groups
MAX_STEP_TOKENS = 2048


@dataclass(frozen=True)
class Capacity:
    """What memory allows."""

    layout: KvLayout  # blocks of keys and values
    scheduling: SchedulerConfig  # how the scheduler may use them


@dataclass(frozen=True)
class MemoryRequest:
    """What a model's keys and values are asked to fit into."""

    sizes: Mapping[int, int]  # bytes of a token, by window
    nbytes: int  # for keys and values
    max_context: int | None  # tokens at which answers end, and which must fit; None: the model's own, as far as it fits
    max_running: int  # samples that share a step
    max_chunk: int  # prompt tokens of one request in a step
    block_size: int = BLOCK_SIZE

    def length(self, config: ModelConfig) -> int:
        """Tokens at which answers end."""
        return min(config.context, self.max_context or config.context)


def plan_memory(model: Model, wanted: MemoryRequest) -> Capacity:
    """Blocks of every group of layers: at most what all requests at full length would take.

    Memory may hold less than the model's own context, but never less than a given `max_context`.
    """
    layout, context = fit_context(model.config, wanted)
    return Capacity(layout, _scheduling(model, context, wanted))


def fit_context(config: ModelConfig, wanted: MemoryRequest) -> tuple[KvLayout, int]:
    """The blocks, and the context that they hold. Same as `plan_memory`, before the weights are read."""
    context = wanted.length(config)
    least = min(LEAST_CONTEXT, context)
    while context >= least:
        for typical in (min(context, TYPICAL_TOKENS), context):
            layout = _layout(wanted, typical, context)
            if layout is not None:
                return layout, context
        if wanted.max_context is not None:
            break
        context //= 2
    token_bytes = sum(wanted.sizes.values())
    raise MemoryError(
        f"{wanted.nbytes >> 20} MiB are left for keys and values, too few for a context of {context} "
        f"({token_bytes >> 10} KiB a token): lower max_context (--max-context) to about "
        f"{wanted.nbytes // token_bytes}, or free memory"
    )


def _scheduling(model: Model, context: int, wanted: MemoryRequest) -> SchedulerConfig:
    return SchedulerConfig(
        context, wanted.max_running, max_chunk=wanted.max_chunk, max_step_tokens=MAX_STEP_TOKENS,
        row_context=row_context(model), context_length=wanted.length(model.config),
    )  # fmt: skip


def _layout(wanted: MemoryRequest, typical: int, context: int) -> KvLayout | None:
    """None if a single request of full context would not fit."""
    layers = [LayerKv(KvKind.WINDOW if window else KvKind.FULL, size, window) for window, size in wanted.sizes.items()]
    try:
        layout = make_layout(layers, wanted.block_size, wanted.nbytes, typical, wanted.max_chunk)
    except ValueError:
        return None
    price = layout.price(context, 1, 1, wanted.max_chunk)
    if any(blocks > group.num_blocks for blocks, group in zip(price, layout.groups, strict=True)):
        return None
    groups = zip(price, layout.groups, strict=True)
    capped = [replace(group, num_blocks=min(group.num_blocks, blocks * wanted.max_running)) for blocks, group in groups]
    return replace(layout, groups=tuple(capped))


def workspace_bytes(config: ModelConfig, max_running: int, most_drafts: int = 0) -> int:
    """What a step's arrays take at most: rows of the stream and of both halves of a layer, and logits."""
    rows, heads = MAX_STEP_TOKENS + max_running, max(kv.key_dim + kv.value_dim for kv in _kv_layers(config))
    copies = config.moe.router.top_k + 1 if config.moe is not None else 1
    per_row = 8 * config.width + 4 * copies * (config.ffn + config.width) + 3 * config.heads * heads
    return 4 * (rows * per_row + 2 * (max_running + most_drafts) * config.vocab_size)


def _kv_layers(config: ModelConfig) -> list[KvLayer]:
    return [config.kv(layer) for layer in range(len(config.layers))]


def free_bytes(config: ModelConfig, max_running: int, most_drafts: int = 0, promised: int = 0) -> int:
    """Memory that keys and values may take: of the limit, what the weights and a step's arrays leave.

    promised: bytes of weights that are not read yet."""
    left = machine.memory().limit_bytes - machine.used_bytes()
    addresses = machine.free_addresses()
    left = (left if addresses is None else min(left, addresses)) - promised
    return max(0, int((left - workspace_bytes(config, max_running, most_drafts)) * SHARE_OF_MEMORY))
