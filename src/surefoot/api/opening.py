"""Opens a model's files, without reading weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.api.defaults import SamplingDefaults, from_generation_config, from_gguf
from surefoot.api.pooling import PoolingConfig, find_pooling
from surefoot.formats import AUTO_FORMAT
from surefoot.models import ENCODERS, check_supported, family_of
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
from surefoot.weights import BackgroundHash, Checkpoint, PackedCache, find_model, hash_in_background, open_checkpoint


@dataclass(frozen=True)
class OpenModel:
    """A model that is opened but not loaded."""

    path: Path  # a GGUF file or a Hugging Face folder
    checkpoint: Checkpoint
    sampling: SamplingDefaults
    template_override: str | None = None  # a chat template that replaces the model's
    pooling: PoolingConfig | None = None  # None: the model only generates
    digests: BackgroundHash | None = None  # of its files, if they are being hashed
    adapter: str | None = None  # the task whose adapter is in the weights

    @property
    def has_chat_template(self) -> bool:
        if self.template_override is not None:
            return True
        if self.path.is_dir():
            return "default" in chat_template_from_folder(self.path).templates
        return "tokenizer.chat_template" in self.checkpoint.metadata

    def hashing(self, cache: PackedCache | None) -> "OpenModel":
        """The same, with its files being hashed in a thread. cache: remembers the hashes."""
        return replace(self, digests=hash_in_background(self.path, cache))

    def load_text(self) -> tuple[Tokenizer, ChatTemplate]:
        if self.path.is_dir():
            tokenizer, template = tokenizer_from_folder(self.path), chat_template_from_folder(self.path)
        else:
            tokenizer = tokenizer_from_gguf(self.checkpoint.metadata)
            template = chat_template_from_gguf(self.checkpoint.metadata, tokenizer)
        if self.template_override is not None:
            template = ChatTemplate(self.template_override, template.tokens)
        return tokenizer, template


def chosen_format(asked: str, metadata: Mapping[str, Any]) -> str:
    """The format of float weights by its name. An encoder's vectors are compared with one another, and it is small."""
    if asked != AUTO_FORMAT:
        return asked
    return "w12" if family_of(metadata) in ENCODERS else "w8"


def open_model(
    model: str | Path | OpenModel,
    sampling: Mapping[str, Any] | None = None,
    chat_template: str | Path | None = None,
    pooling: str | None = None,
    adapter: str | None = None,
) -> OpenModel:
    """Open a model. sampling: replaces values of the model's files. chat_template: a file, or the name of a common
    format. pooling: mean, cls, last or rank, instead of what the model's files say. adapter: the task of one that the
    model's files have."""
    if isinstance(model, OpenModel):
        return replace(model, sampling=model.sampling.changed(sampling or {}))
    template_override = find_template(chat_template) if chat_template is not None else None
    path = find_model(str(model), check_supported)
    checkpoint = open_checkpoint(path, adapter)
    if path.is_dir():
        recommended = from_generation_config(read_json(path / "generation_config.json"))
    else:
        recommended = from_gguf(checkpoint.metadata)
    found = find_pooling(path, checkpoint, pooling)
    return OpenModel(path, checkpoint, recommended.changed(sampling or {}), template_override, found, adapter=adapter)


def short_name(model: str | Path) -> str:
    """A model's short name: the last part of its path or hub id, without `.gguf`, `@revision` or `:quant`.

    Not `Path.stem`, which would cut Qwen2.5-Coder-1.5B at its last dot.
    """
    name = Path(model).name.partition(":")[0].partition("@")[0]
    return name.removesuffix(".gguf")
