"""A model's files, opened: what is known before any weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.api.defaults import SamplingDefaults, from_generation_config, from_gguf
from surefoot.text import (
    ChatTemplate,
    Tokenizer,
    chat_template_from_folder,
    chat_template_from_gguf,
    find_template,
    tokenizer_from_folder,
    tokenizer_from_gguf,
)
from surefoot.text.huggingface import read_json
from surefoot.weights import Checkpoint, find_model, open_checkpoint


@dataclass(frozen=True)
class OpenModel:
    """A model that is opened and not loaded."""

    place: Path  # a GGUF file or a Hugging Face folder
    checkpoint: Checkpoint
    sampling: SamplingDefaults
    given_template: str | None = None  # a chat template instead of the model's own

    @property
    def has_chat_template(self) -> bool:
        if self.given_template is not None:
            return True
        if self.place.is_dir():
            return "default" in chat_template_from_folder(self.place).templates
        return "tokenizer.chat_template" in self.checkpoint.metadata

    def load_text(self) -> tuple[Tokenizer, ChatTemplate]:
        if self.place.is_dir():
            tokenizer, template = tokenizer_from_folder(self.place), chat_template_from_folder(self.place)
        else:
            tokenizer = tokenizer_from_gguf(self.checkpoint.metadata)
            template = chat_template_from_gguf(self.checkpoint.metadata, tokenizer)
        if self.given_template is not None:
            template = ChatTemplate(self.given_template, template.tokens)
        return tokenizer, template


def open_model(
    path: str | Path | OpenModel,
    sampling: Mapping[str, Any] | None = None,
    chat_template: str | Path | None = None,
) -> OpenModel:
    """Open a model. sampling: replaces the model's own values. chat_template: a file, or the name of a common
    format."""
    if isinstance(path, OpenModel):
        return replace(path, sampling=path.sampling.changed(sampling or {}))
    given_template = find_template(chat_template) if chat_template is not None else None
    place = find_model(str(path))
    checkpoint = open_checkpoint(place)
    if place.is_dir():
        advised = from_generation_config(read_json(place / "generation_config.json"))
    else:
        advised = from_gguf(checkpoint.metadata)
    return OpenModel(place, checkpoint, advised.changed(sampling or {}), given_template)


def short_name(model: str | Path) -> str:
    """What to call a model: the last part of its path or hub id, without `.gguf`, `@revision` or `:quant`.

    Not `Path.stem`, which would cut Qwen2.5-Coder-1.5B at its last dot.
    """
    name = Path(model).name.partition(":")[0].partition("@")[0]
    return name.removesuffix(".gguf")
