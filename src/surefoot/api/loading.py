"""Loads a model: weights, tokenizer and chat template."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from surefoot import machine
from surefoot.api.opening import OpenModel, chosen_format, open_model
from surefoot.formats import to_format
from surefoot.models import Model, ModelConfig, load, read_config
from surefoot.ops import Backend
from surefoot.text import ChatTemplate, Tokenizer
from surefoot.weights import MetadataError, PackedCache, Report, ReportingCheckpoint, packed_cache
from surefoot.weights.memory import check_memory, weight_bytes


@dataclass(frozen=True)
class Loaded:
    """A model in memory, with all that turns text into its tokens."""

    backend: Backend  # runs the model's operations
    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate


# Raises MemoryError if a model with this many bytes of weights leaves no memory for the context; called before the
# weights are read.
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
    """Load a model. cache: of packed weights, or its folder. backend: an existing backend to use. fits: see `Fits`."""
    opened = open_model(path)
    location, checkpoint = opened.path, opened.checkpoint
    float_format = chosen_format(float_format, checkpoint.metadata)
    fmt = to_format(float_format)
    check_memory(location, checkpoint, fmt, threads or machine.usable_cores())
    with ThreadPoolExecutor(1) as text_thread:  # concurrent with packing, which is native work and releases the GIL
        texts = text_thread.submit(opened.load_text)
        backend = backend or Backend(variant, threads)
        try:
            if fits is not None:
                fits(backend, read_config(checkpoint), weight_bytes(checkpoint, fmt))
            model = _load_weights(backend, opened, float_format, cache, report)
        except MetadataError as error:
            raise MetadataError(f"{location}: {error}") from None
        report(1, 1)  # a file may have tensors that its model does not need, so the reports may have ended below 1
        tokenizer, template = texts.result()
        check_vocabulary(tokenizer, model.config)
        return Loaded(backend, model, tokenizer, template)


def check_vocabulary(tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Raises ValueError if text could become a token without an embedding.

    Special tokens may have no embedding, such as Gemma's image tokens: no text becomes such a token.
    """
    not_embedded = range(config.vocab_size, tokenizer.vocab_size)
    if any(tokenizer.pieces[token] and token not in tokenizer.special for token in not_embedded):
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, and the model knows {config.vocab_size}: they do not "
            "belong together; fetch both again"
        )


def _load_weights(
    backend: Backend,
    opened: OpenModel,
    float_format: str,
    cache: str | Path | PackedCache | None,
    report: Report,
) -> Model:
    fmt = to_format(float_format)
    if cache is None or fmt.weights is None:
        return load(backend, ReportingCheckpoint(opened.checkpoint, report), fmt)
    folder = cache if isinstance(cache, PackedCache) else PackedCache(Path(cache))
    form = " ".join(filter(None, (float_format, opened.adapter)))
    with packed_cache(folder, opened.path, opened.checkpoint, form, report, backend) as cached:
        return load(backend, cached, fmt)
