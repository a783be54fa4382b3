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


def plan_memory(
    model: Model,
    sizes: Mapping[int, int],
    nbytes: int,
    max_context: int | None,
    max_running: int,
    max_chunk: int,
    block_size: int = BLOCK_SIZE,
) -> Capacity:
    """Blocks of every group of layers within `nbytes`: at most what all requests at full length would take.

    sizes: bytes of a token, by window. Answers end at `max_context`, or at the model's own context if it is None.
    Memory may hold less than the model's own context, but never less than a given `max_context`.
    """
    layout, context = fit_context(model.config, sizes, nbytes, max_context, max_running, max_chunk, block_size)
    length = min(model.config.context, max_context or model.config.context)
    return Capacity(layout, _scheduling(model, context, length, max_running, max_chunk))


def fit_context(
    config: ModelConfig,
    sizes: Mapping[int, int],
    nbytes: int,
    max_context: int | None,
    max_running: int,
    max_chunk: int,
    block_size: int = BLOCK_SIZE,
) -> tuple[KvLayout, int]:
    """Blocks within `nbytes`, and the context that they hold. Same as `plan_memory`, before the weights are read."""
    context = min(config.context, max_context or config.context)
    least = min(LEAST_CONTEXT, context)
    while context >= least:
        for typical in (min(context, TYPICAL_TOKENS), context):
            layout = _layout(sizes, nbytes, typical, context, max_running, max_chunk, block_size)
            if layout is not None:
                return layout, context
        if max_context is not None:
            break
        context //= 2
    token_bytes = sum(sizes.values())
    raise MemoryError(
        f"{nbytes >> 20} MiB are left for keys and values, too few for a context of {context} ({token_bytes >> 10} KiB "
        f"a token): lower max_context (--max-context) to about {nbytes // token_bytes}, or free memory"
    )


def _scheduling(model: Model, context: int, length: int, max_running: int, max_chunk: int) -> SchedulerConfig:
    return SchedulerConfig(
        context, max_running, max_chunk=max_chunk, max_step_tokens=MAX_STEP_TOKENS,
        row_context=row_context(model), context_length=length,
    )  # fmt: skip


def _layout(
    sizes: Mapping[int, int], nbytes: int, typical: int, context: int, max_running: int, max_chunk: int, block_size: int
) -> KvLayout | None:
    """None if a single request of full context would not fit."""
    layers = [LayerKv(KvKind.WINDOW if window else KvKind.FULL, size, window) for window, size in sizes.items()]
    try:
        layout = make_layout(layers, block_size, nbytes, typical, max_chunk)
    except ValueError:
        return None
    price = layout.price(context, 1, 1, max_chunk)
    if any(blocks > group.num_blocks for blocks, group in zip(price, layout.groups, strict=True)):
        return None
    groups = zip(price, layout.groups, strict=True)
    capped = [replace(group, num_blocks=min(group.num_blocks, blocks * max_running)) for blocks, group in groups]
    return replace(layout, groups=tuple(capped))


def workspace_bytes(config: ModelConfig, max_running: int, most_drafts: int = 0) -> int:
    """What a step's arrays take at most: rows of the stream and of both halves of a layer, and logits."""
    rows, heads = MAX_STEP_TOKENS + max_running, max(kv.key_dim + kv.value_dim for kv in _kv_layers(config))
    copies = config.moe.router.top_k + 1 if config.moe is not None else 1
    per_row = (
        8 * config.width
        + 2 * config.layer_lanes * (len(config.layers) + 2)
        + 4 * copies * (config.ffn + config.width)
        + 3 * config.heads * heads
    )
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
