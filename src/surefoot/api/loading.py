"""From a path to a model that can run: checkpoint, tokenizer, chat template, memory for keys and values."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot import machine
from surefoot.api.memory import check_room, weight_bytes
from surefoot.api.opening import OpenModel, open_model
from surefoot.engine import Engine
from surefoot.formats import to_format
from surefoot.kv import KvKind, KvLayout, KvManager, LayerKv, make_layout
from surefoot.models import KvLayer, Model, ModelConfig, load, read_config, row_context
from surefoot.ops import Backend, KvForm, PackedWeights
from surefoot.runner import Executor, Runner
from surefoot.sampling import Grammars
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.speculate import Speculator
from surefoot.text import ChatTemplate, Tokenizer
from surefoot.weights import Checkpoint, MetadataError, PackedCache, Report, ReportingCheckpoint, packed_cache

SHARE_OF_MEMORY = 0.8  # of what is left: the rest is Python's, and whoever else's
LEAST_CONTEXT = 64
BLOCK_SIZE = 16
TYPICAL_TOKENS = 2048
MAX_STEP_TOKENS = 2048


@dataclass(frozen=True)
class Room:
    """What memory allows: blocks of keys and values, and how the scheduler may use them."""

    layout: KvLayout
    scheduling: SchedulerConfig


@dataclass(frozen=True)
class Loaded:
    backend: Backend
    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate


# Raises MemoryError if a model with this many bytes of weights leaves no room for the context, before they are read.
Fits = Callable[[Backend, ModelConfig, int], None]


def load_model(
    path: str | Path | OpenModel,
    float_format: str,
    variant: str | None,
    threads: int | None,
    cache: str | Path | PackedCache | None = None,
    backend: Backend | None = None,
    report: Report = lambda done, total: None,
    fits: Fits | None = None,
) -> Loaded:
    """cache: for packed weights (a folder, say), or none. backend: one that is there already. fits: see `Fits`."""
    fmt = to_format(float_format)
    opened = open_model(path)
    place, checkpoint = opened.place, opened.checkpoint
    check_room(place, checkpoint, fmt, threads or machine.usable_cores())
    with ThreadPoolExecutor(1) as beside:  # packing is native work, tokenizers are Python's
        texts = beside.submit(opened.load_text)
        backend = backend or Backend(variant, threads)
        try:
            if fits is not None:
                fits(backend, read_config(checkpoint), weight_bytes(checkpoint, fmt))
            model = _load_weights(backend, place, checkpoint, float_format, cache, report)
        except MetadataError as wrong:
            raise MetadataError(f"{place}: {wrong}") from None
        report(1, 1)  # also where a file has tensors that its model does not need
        tokenizer, template = texts.result()
        check_vocabulary(tokenizer, model.config)
        return Loaded(backend, model, tokenizer, template)


def check_vocabulary(tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Special tokens may lie beyond the embeddings (Gemma's, for images): no text is made of them."""
    beyond = range(config.vocab_size, tokenizer.vocab_size)
    if any(tokenizer.pieces[token] and token not in tokenizer.special for token in beyond):
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, and the model knows {config.vocab_size}: they do not "
            "belong together; fetch both again"
        )


def _load_weights(
    backend: Backend,
    place: Path,
    checkpoint: Checkpoint,
    float_format: str,
    cache: str | Path | PackedCache | None,
    report: Report,
) -> Model:
    fmt = to_format(float_format)
    if cache is None or fmt.weights is None:
        return load(backend, ReportingCheckpoint(checkpoint, report), fmt)
    kept = cache if isinstance(cache, PackedCache) else PackedCache(Path(cache))
    with packed_cache(kept, place, checkpoint, float_format, report) as cached:
        return load(backend, cached, fmt)


def plan_memory(
    model: Model,
    sizes: Mapping[int, int],
    nbytes: int,
    max_context: int | None,
    max_running: int,
    max_chunk: int,
    block_size: int = BLOCK_SIZE,
) -> Room:
    """Blocks of every group of layers within so many bytes: at most what all requests at full length would take.

    sizes: bytes of a token, by window. Answers end at the model's own context unless another is given. Memory may hold
    less than the model's own, never less than a given one.
    """
    layout, context = fit_context(model.config, sizes, nbytes, max_context, max_running, max_chunk, block_size)
    length = min(model.config.context, max_context or model.config.context)
    return Room(layout, _scheduling(model, context, length, max_running, max_chunk))


def fit_context(
    config: ModelConfig,
    sizes: Mapping[int, int],
    nbytes: int,
    max_context: int | None,
    max_running: int,
    max_chunk: int,
    block_size: int = BLOCK_SIZE,
) -> tuple[KvLayout, int]:
    """Blocks within so many bytes, and the context that they hold; as `plan_memory`, without the model's weights."""
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
    """None if not even one request of full context would fit."""
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


def make_runner(loaded: Loaded, room: Room, kv_form: KvForm, most_drafts: int = 0) -> Runner:
    layout, scheduling = room.layout, room.scheduling
    runner = Runner(
        loaded.backend, loaded.model, scheduling.max_context, scheduling.max_running, scheduling.max_chunk, kv_form,
        record=not _has_float_experts(loaded.model), block_size=layout.block_size,
        num_blocks={group.window: group.num_blocks for group in layout.groups},
    )  # fmt: skip
    runner.prepare(scheduling.max_step_tokens, scheduling.max_running, scheduling.max_running + most_drafts)
    return runner


def make_engine(
    room: Room,
    runner: Runner,
    grammars: Grammars | None = None,
    caching: bool = True,
    speculator: Speculator | None = None,
) -> Engine:
    executor = Executor(runner, grammars, speculator)
    return Engine(lambda: Scheduler(room.scheduling, KvManager(room.layout, caching)), executor)


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


def _has_float_experts(model: Model) -> bool:
    """Float experts look at values, which a recording cannot."""
    return model.config.moe is not None and not isinstance(model.embeddings, PackedWeights)
