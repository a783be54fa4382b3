"""How much fits into memory: the context length, and the blocks of keys and values."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from surefoot import machine
from surefoot.kv import KvKind, KvLayout, LayerKv, StateLayout, blocks_for, make_layout
from surefoot.models import KvLayer, Model, ModelConfig, StateLayer
from surefoot.scheduler import SchedulerConfig
from surefoot.speed import model_work
from surefoot.speed.shipped_rates import nominal_rates
from surefoot.speed.step_time import PredictedSteps

MEMORY_FRACTION = 0.8  # of the free memory: Python and other processes need the rest
MIN_CONTEXT = 64  # tokens; a shorter context is used only on request
BLOCK_SIZE = 16
TYPICAL_TOKENS = 2048  # of a request: blocks are divided among groups of layers so that these fill all groups
MAX_STEP_TOKENS = 2048
SLOTS_PER_REQUEST = 2  # of states: one to go on from, one to save to
SNAPSHOT_SHARE = 0.2  # of the memory that these slots leave, for snapshots of states
SAFE_SHARE = 0.95  # of a context that fits now: at the next start a little less memory may be free
MIB = 1 << 20
DRAFTING_ROWS = 12  # of floats that a drafting layer takes for a row: features, what is fused, joined and quantised
MIN_STRIDE = 64  # tokens between snapshots along a prompt


@dataclass(frozen=True)
class Capacity:
    """The KV blocks that fit into memory, and the scheduler's limits that follow."""

    layout: KvLayout
    scheduling: SchedulerConfig
    times: PredictedSteps  # of steps on a usual machine


@dataclass(frozen=True)
class MemoryRequest:
    """The memory for keys and values, and the limits of requests that it must serve."""

    sizes: Mapping[int, int]  # bytes of a token, by window
    nbytes: int  # for keys and values
    max_context: int | None  # tokens at which answers end; None: the model's context length, or less if memory is short
    max_running: int  # samples that share a step
    max_chunk: int  # prompt tokens of one request in a step
    block_size: int = BLOCK_SIZE  # tokens of a KV block

    def length(self, config: ModelConfig) -> int:
        """Tokens at which answers end."""
        return min(config.context, self.max_context or config.context)

    def fitted(self, config: ModelConfig) -> "MemoryRequest":
        """The same for this model: a prompt whose tokens see later ones is computed in one step."""
        if not config.sees_ahead:
            return self
        length = min(self.length(config), MAX_STEP_TOKENS)
        return replace(self, max_context=length, max_chunk=length)


def plan_memory(model: Model, request: MemoryRequest, variant: str, threads: int = 1) -> Capacity:
    """Plan the KV blocks of every group of layers, at most for `max_running` requests of full length.

    Memory may have room for less than the model's context length, but not for less than a `max_context` that is set.
    """
    request = request.fitted(model.config)
    layout, context = fit_context(model.config, request)
    times = PredictedSteps(model_work(model, request.sizes), nominal_rates(variant, threads))
    return Capacity(layout, _scheduling(model, context, request, times), times)


def fit_context(config: ModelConfig, request: MemoryRequest) -> tuple[KvLayout, int]:
    """The blocks, and the context length that fits. Same as `plan_memory`, before the weights are read."""
    fitted = _find_context(config, request)
    if fitted is None:
        raise MemoryError(_shortage(config, request))
    return fitted


def _find_context(config: ModelConfig, request: MemoryRequest) -> tuple[KvLayout, int] | None:
    request = request.fitted(config)
    context = request.length(config)
    if SLOTS_PER_REQUEST * request.max_running * config.state_bytes >= request.nbytes:
        return None
    states = _state_layout(config, request, context)
    if states is not None:
        request = replace(request, nbytes=request.nbytes - states.num_slots * states.slot_bytes)
    min_context = min(MIN_CONTEXT, context)
    while context >= min_context:
        for typical in (min(context, TYPICAL_TOKENS), context):
            layout = _layout(request, typical, context)
            if layout is not None:
                return replace(layout, states=states), context
        if request.max_context is not None:
            break
        context //= 2
    return None


def _shortage(config: ModelConfig, request: MemoryRequest) -> str:
    """What does not fit, and changes with which it would."""
    context = request.fitted(config).length(config) if request.max_context is not None else MIN_CONTEXT
    states = f", {request.max_running} requests with {config.state_bytes / MIB:.3g} MiB of state each"
    return (
        f"{request.nbytes / MIB:.3g} MiB are left for keys and values, too few for a context of {context} "
        f"({sum(request.sizes.values()) / 1024:.3g} KiB a token{states if config.state_bytes else ''}): "
        + "; or ".join(_remedies(config, request, context))
    )


def _remedies(config: ModelConfig, request: MemoryRequest, context: int) -> Iterator[str]:
    def lacks_room(changed: MemoryRequest) -> bool:
        return _find_context(config, changed) is None

    contexts, numbers = range(1, context), range(1, request.max_running)
    if longest := bisect_left(contexts, True, key=lambda length: lacks_room(replace(request, max_context=length))):
        yield f"lower max_context (--max-context) to {max(1, int(SAFE_SHARE * longest))}"
    elif most := bisect_left(numbers, True, key=lambda number: lacks_room(replace(request, max_running=number))):
        yield f"lower max_running (--max-running) to {most}"
    yield "free memory, or raise --kv-memory if it is set"


def _scheduling(model: Model, context: int, request: MemoryRequest, times: PredictedSteps) -> SchedulerConfig:
    return SchedulerConfig(
        context, request.max_running, max_chunk=request.max_chunk, max_step_tokens=MAX_STEP_TOKENS,
        whole_prompts=model.config.sees_ahead, row_context=times.row_context(), step_shape=times.shape(),
        context_length=request.length(model.config),
    )  # fmt: skip


def _layout(request: MemoryRequest, typical: int, context: int) -> KvLayout | None:
    """The layout; None if a single request of full context length would not fit."""
    layers = [LayerKv(KvKind.WINDOW if window else KvKind.FULL, size, window) for window, size in request.sizes.items()]
    try:
        layout = make_layout(layers, request.block_size, request.nbytes, typical, request.max_chunk)
    except ValueError:
        return None
    price = layout.price(context, 1, 1, request.max_chunk)
    if any(blocks > group.num_blocks for blocks, group in zip(price, layout.groups, strict=True)):
        return None
    groups = zip(price, layout.groups, strict=True)
    capped = [
        replace(group, num_blocks=min(group.num_blocks, blocks * request.max_running)) for blocks, group in groups
    ]
    return replace(layout, groups=tuple(capped))


def _state_layout(config: ModelConfig, request: MemoryRequest, context: int) -> StateLayout | None:
    """Slots for running requests, and for snapshots: at most those of all requests at full length.

    Snapshots along a prompt are as far apart as makes them no larger than the keys and values between them."""
    if not (slot_bytes := config.state_bytes):
        return None
    promised = SLOTS_PER_REQUEST * request.max_running
    left = request.nbytes - promised * slot_bytes
    token_bytes = sum(request.sizes.values())
    stride = blocks_for(max(MIN_STRIDE, slot_bytes // token_bytes), request.block_size) * request.block_size
    snapshots = min(int(left * SNAPSHOT_SHARE) // slot_bytes, request.max_running * (context // stride + 3))
    return StateLayout(promised + snapshots, promised, stride, slot_bytes)


def workspace_bytes(config: ModelConfig, max_running: int, max_drafts: int = 0) -> int:
    """Upper bound on the activations of a step: residual stream, attention, feed-forward, and logits."""
    rows, heads = MAX_STEP_TOKENS + max_running, max(kv.key_dim + kv.value_dim for kv in _kv_layers(config))
    copies = config.moe.router.top_k + 1 if config.moe is not None else 1
    per_row = (
        8 * config.width
        + 2 * config.layer_lanes * (len(config.layers) + 2)
        + 4 * copies * (config.ffn + config.width)
        + 3 * config.heads * heads
        + DRAFTING_ROWS * _drafting_lanes(config)
    )
    return 4 * (rows * per_row + 2 * (max_running + max_drafts) * config.vocab_size)


def _drafting_lanes(config: ModelConfig) -> int:
    """Of the row that a drafting layer keeps; 0: there is no such layer."""
    states = (layer.kv for layer in config.drafting_layers)
    return sum(state.nbytes // 4 for state in states if isinstance(state, StateLayer))


def _kv_layers(config: ModelConfig) -> list[KvLayer]:
    return [config.kv(layer) for layer in config.attention_layers]


def free_bytes(config: ModelConfig, max_running: int, max_drafts: int = 0, unread_bytes: int = 0) -> int:
    """Memory for keys and values: a fraction of what weights and activations leave free.

    unread_bytes: weights that are not read yet.
    """
    left = machine.memory().limit_bytes - machine.used_bytes()
    addresses = machine.free_addresses()
    left = (left if addresses is None else min(left, addresses)) - unread_bytes
    return max(0, int((left - workspace_bytes(config, max_running, max_drafts)) * MEMORY_FRACTION))
