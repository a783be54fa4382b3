"""From a path to a model that can run: checkpoint, tokenizer, chat template, memory for keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import mul
from pathlib import Path

from surefoot import machine
from surefoot.engine import FifoConfig
from surefoot.formats import to_format
from surefoot.models import Model, ModelConfig, load
from surefoot.ops import Backend, KvForm, PackedWeights
from surefoot.runner import Runner
from surefoot.text import (
    ChatTemplate,
    Tokenizer,
    chat_template_from_folder,
    chat_template_from_gguf,
    tokenizer_from_folder,
    tokenizer_from_gguf,
)
from surefoot.weights import find_model, open_checkpoint, packed_cache

SHARE_OF_MEMORY = 0.8  # of what is left when the weights are loaded
LEAST_CONTEXT = 64
BLOCK_SIZE = 64


@dataclass(frozen=True)
class Loaded:
    backend: Backend
    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate


def load_model(
    path: str | Path,
    float_format: str,
    variant: str | None,
    threads: int | None,
    cache: str | Path | None = None,
) -> Loaded:
    """cache: a folder for packed weights, or none."""
    weight_format = to_format(float_format)
    place = find_model(str(path))
    checkpoint = open_checkpoint(place)
    if place.is_dir():
        tokenizer, template = tokenizer_from_folder(place), chat_template_from_folder(place)
    else:
        tokenizer = tokenizer_from_gguf(checkpoint.metadata)
        template = chat_template_from_gguf(checkpoint.metadata, tokenizer)
    backend = Backend(variant, threads)
    if cache is None or weight_format is None:
        return Loaded(backend, load(backend, checkpoint, weight_format), tokenizer, template)
    with packed_cache(Path(cache).expanduser(), place, checkpoint, float_format) as cached:
        return Loaded(backend, load(backend, cached, weight_format), tokenizer, template)


def plan_memory(
    config: ModelConfig,
    sizes: Mapping[int, int],
    nbytes: int,
    max_context: int | None,
    max_running: int,
    max_chunk: int,
) -> FifoConfig:
    """Blocks of every group of layers within so many bytes: at most what all requests at full length would take.

    sizes: bytes of a token, by window. The context is the model's own unless one is given, or less if it must be.
    """
    context = min(config.context, max_context or config.context)
    windows = config.windows
    while context >= min(LEAST_CONTEXT, config.context):
        plan = FifoConfig(windows, [0] * len(windows), BLOCK_SIZE, context, max_running, max_chunk, max_chunk)
        block_bytes = [sizes[window] * BLOCK_SIZE for window in windows]
        price = plan.price(context)
        num_requests = min(max_running, nbytes // sum(map(mul, price, block_bytes)))
        if num_requests:
            return replace(plan, num_blocks=[count * num_requests for count in price])
        if max_context is not None:
            break
        context //= 2
    raise MemoryError(
        f"{nbytes >> 20} MiB are left for keys and values, too few for a context of {context}: "
        "lower max_context, or free memory"
    )


def make_runner(loaded: Loaded, plan: FifoConfig, kv_form: KvForm) -> Runner:
    blocks = dict(zip(plan.windows, plan.num_blocks, strict=True))
    return Runner(
        loaded.backend, loaded.model, plan.max_context, plan.max_running, plan.max_chunk, kv_form,
        record=not _has_float_experts(loaded.model), block_size=plan.block_size, num_blocks=blocks,
    )  # fmt: skip


def free_bytes() -> int:
    """Memory that keys and values may take."""
    return int((machine.memory().limit_bytes - machine.used_bytes()) * SHARE_OF_MEMORY)


def _has_float_experts(model: Model) -> bool:
    """Float experts look at values, which a recording cannot."""
    return model.config.moe is not None and not isinstance(model.embeddings, PackedWeights)
