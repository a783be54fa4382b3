"""How much fits into memory: the context length, and the blocks of keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surefoot import machine
from surefoot.kv import KvKind, KvLayout, LayerKv, make_layout
from surefoot.models import KvLayer, Model, ModelConfig, row_context
from surefoot.scheduler import SchedulerConfig

MEMORY_FRACTION = 0.8  # of the free memory: Python and other processes need the rest
MIN_CONTEXT = 64  # tokens; a shorter context is used only on request
BLOCK_SIZE = 16
TYPICAL_TOKENS = 2048  # of a request: blocks are divided among groups of layers so that these fill all groups
MAX_STEP_TOKENS = 2048


@dataclass(frozen=True)
class ServingLimits:
    """The limits that a user sets on requests."""

    max_context: int | None  # tokens of a request; None: the model's context length, or less if memory is short
    max_running: int  # samples that share a step
    max_chunk: int  # prompt tokens of one request in a step
    block_size: int = BLOCK_SIZE  # tokens of a KV block


@dataclass(frozen=True)
class Capacity:
    """The KV blocks that fit into memory, and the scheduler's limits that follow."""

    layout: KvLayout
    scheduling: SchedulerConfig


def plan_memory(model: Model, sizes: Mapping[int, int], nbytes: int, limits: ServingLimits) -> Capacity:
    """Plan the KV blocks of every group of layers within `nbytes`, at most for `max_running` requests of full length.

    sizes: bytes of a token, by window. Answers end at `max_context`; None: at the model's context length. Memory may
    have room for less than the model's context length, but not for less than a `max_context` that is set.
    """
    layout, context = fit_context(model.config, sizes, nbytes, limits)
    length = min(model.config.context, limits.max_context or model.config.context)
    return Capacity(layout, _scheduling(model, context, length, limits))


def fit_context(
    config: ModelConfig, sizes: Mapping[int, int], nbytes: int, limits: ServingLimits
) -> tuple[KvLayout, int]:
    """Blocks within `nbytes`, and the context length that fits. Same as `plan_memory`, before weights are read."""
    context = min(config.context, limits.max_context or config.context)
    min_context = min(MIN_CONTEXT, context)
    while context >= min_context:
        for typical in (min(context, TYPICAL_TOKENS), context):
            layout = _layout(sizes, nbytes, typical, context, limits)
            if layout is not None:
                return layout, context
        if limits.max_context is not None:
            break
        context //= 2
    token_bytes = sum(sizes.values())
    raise MemoryError(
        f"{nbytes >> 20} MiB are left for keys and values, too few for a context of {context} ({token_bytes >> 10} KiB "
        f"a token): lower max_context (--max-context) to about {nbytes // token_bytes}, or free memory"
    )


def _scheduling(model: Model, context: int, length: int, limits: ServingLimits) -> SchedulerConfig:
    return SchedulerConfig(
        context, limits.max_running, max_chunk=limits.max_chunk, max_step_tokens=MAX_STEP_TOKENS,
        row_context=row_context(model), context_length=length,
    )  # fmt: skip


def _layout(
    sizes: Mapping[int, int], nbytes: int, typical: int, context: int, limits: ServingLimits
) -> KvLayout | None:
    """The layout; None if a single request of full context length would not fit."""
    layers = [LayerKv(KvKind.WINDOW if window else KvKind.FULL, size, window) for window, size in sizes.items()]
    try:
        layout = make_layout(layers, limits.block_size, nbytes, typical, limits.max_chunk)
    except ValueError:
        return None
    price = layout.price(context, 1, 1, limits.max_chunk)
    if any(blocks > group.num_blocks for blocks, group in zip(price, layout.groups, strict=True)):
        return None
    groups = zip(price, layout.groups, strict=True)
    capped = [replace(group, num_blocks=min(group.num_blocks, blocks * limits.max_running)) for blocks, group in groups]
    return replace(layout, groups=tuple(capped))


def workspace_bytes(config: ModelConfig, max_running: int, max_drafts: int = 0) -> int:
    """Upper bound on the activations of a step: residual stream, attention, feed-forward, and logits."""
    rows, heads = MAX_STEP_TOKENS + max_running, max(kv.key_dim + kv.value_dim for kv in _kv_layers(config))
    copies = config.moe.router.top_k + 1 if config.moe is not None else 1
    per_row = 8 * config.width + 4 * copies * (config.ffn + config.width) + 3 * config.heads * heads
    return 4 * (rows * per_row + 2 * (max_running + max_drafts) * config.vocab_size)


def _kv_layers(config: ModelConfig) -> list[KvLayer]:
    return [config.kv(layer) for layer in range(len(config.layers))]


def free_bytes(config: ModelConfig, max_running: int, max_drafts: int = 0, unread_bytes: int = 0) -> int:
    """Memory for keys and values: a fraction of what weights and activations leave free.

    unread_bytes: weights that are not read yet.
    """
    left = machine.memory().limit_bytes - machine.used_bytes()
    addresses = machine.free_addresses()
    left = (left if addresses is None else min(left, addresses)) - unread_bytes
    return max(0, int((left - workspace_bytes(config, max_running, max_drafts)) * MEMORY_FRACTION))
