"""The option `speculate`: off, auto (the model's own drafting layer, if there is one; lookup), lookup, draft:MODEL.

MODEL is a smaller model, an EAGLE-3 head, Medusa heads, or a draft head's .safetensors file."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.api.loading import Loaded, load_model
from surefoot.formats import to_format
from surefoot.models import EagleHead, MedusaHeads, Model, check_supported, load_eagle, load_medusa, with_head
from surefoot.runner import (
    DraftHead,
    DraftModel,
    HeadWeights,
    LayerDrafter,
    MedusaGuesser,
    Runner,
    SessionRunner,
    StateDrafter,
    load_head,
    slot_bytes,
)
from surefoot.scheduler import SchedulerConfig
from surefoot.speculate import MAX_STEP_DRAFTS, DepthController, Drafter, LookupDrafter, LookupFirst, Speculator
from surefoot.weights import find_model, is_eagle, is_eagle_config, is_medusa, is_medusa_config, open_eagle, open_medusa

LOG = logging.getLogger(__name__)
OFF, AUTO, LOOKUP, DRAFT = "off", "auto", "lookup", "draft:"
HEAD = ".safetensors"  # suffix of a draft head for the target; a draft model is a GGUF file or a folder
MEMORY_FRACTION = 0.15  # of the target's memory for keys and values, given to the draft model's
DRAFT_CHUNK = 512
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Speculation:
    """How drafts are made."""

    name: str  # the option's value
    draft: Loaded | None = None  # a draft model
    head: HeadWeights | None = None  # a draft head on the target
    eagle: EagleHead | None = None  # a published head on the target
    medusa: MedusaHeads | None = None  # others, which guess a token each

    @property
    def max_drafts(self) -> int:
        return 0 if self.name == OFF else MAX_STEP_DRAFTS

    @property
    def head_name(self) -> str:
        """Of a published head; empty: there is none."""
        return "" if self.eagle is None else self.eagle.name

    def fitted(self, model: Model) -> Model:
        """The model with the drafting layer that drafts: a published head, its own, or none."""
        if self.eagle is not None:
            return with_head(model, self.eagle)
        return model if self.name == AUTO else model.without_drafting()

    def share(self, kv_bytes: int) -> int:
        """The part of the memory for keys and values that the draft model takes."""
        return int(kv_bytes * MEMORY_FRACTION) if self.draft is not None else 0

    def start(self, target: Runner, scheduling: SchedulerConfig, nbytes: int) -> Speculator | None:
        """The speculator; None if speculation is off. nbytes: memory for the draft model's keys and values."""
        drafter = None if self.name == OFF else self._drafter(target, scheduling, nbytes)
        return None if drafter is None else Speculator(drafter, DepthController(scheduling.step_shape))

    def _drafter(self, target: Runner, scheduling: SchedulerConfig, nbytes: int) -> Drafter:
        if self.head is not None:
            guesser = DraftHead(target.backend, target.model, self.head)
            return LookupFirst(LookupDrafter(), StateDrafter(target.backend, guesser))
        if self.medusa is not None:
            return LookupFirst(
                LookupDrafter(), StateDrafter(target.backend, MedusaGuesser(target.backend, self.medusa))
            )
        if self.draft is not None:
            runner = _draft_runner(self.draft, scheduling.max_running, scheduling.max_context, nbytes)
            return LookupFirst(LookupDrafter(), DraftModel(runner, target.model.config.vocab_size))
        if target.model.drafting is not None:
            return LookupFirst(LookupDrafter(), LayerDrafter(target))
        return LookupDrafter()


def _draft_runner(draft: Loaded, max_running: int, max_context: int, nbytes: int) -> SessionRunner:
    token_bytes = sum(slot_bytes(draft.backend, draft.model.config, block_size=BLOCK_SIZE).values())
    num_tokens = min(nbytes // token_bytes, max_running * max_context)
    if num_tokens < DRAFT_CHUNK:
        raise MemoryError(
            f"{nbytes >> 20} MiB are too little for the draft model's keys and values: free memory, or leave it out"
        )
    return SessionRunner.make(draft.backend, draft.model, num_tokens, max_running, DRAFT_CHUNK, block_size=BLOCK_SIZE)


def load_speculation(name: str, target: Loaded, float_format: str) -> Speculation:
    """The speculation that the option names. Raises ValueError for an unknown name or a draft model with other
    tokens."""
    if name in (OFF, AUTO, LOOKUP):
        return Speculation(name)
    path = name.removeprefix(DRAFT)
    if not name.startswith(DRAFT) or not path:
        raise ValueError(f"speculate is {OFF}, {AUTO}, {LOOKUP} or {DRAFT}MODEL, not {name!r}")
    if path.endswith(HEAD):
        config = target.model.config
        return Speculation(name, head=load_head(Path(path), config.width, config.vocab_size))
    location = find_draft(path)
    if is_eagle(location):
        return Speculation(name, eagle=_load_eagle(location, target, float_format))
    if is_medusa(location):
        heads = load_medusa(target.backend, open_medusa(location), target.model, to_format(float_format))
        return Speculation(name, medusa=heads)
    draft = load_model(location, float_format, None, None, backend=target.backend)
    pairs = zip(target.tokenizer.pieces, draft.tokenizer.pieces, strict=False)
    if num_other := sum(piece != other for piece, other in pairs):
        raise ValueError(f"{path} cannot draft for this model: {num_other} of its tokens differ")
    return Speculation(name, draft)


def find_draft(name: str) -> Path:
    """The file or folder of a draft model or of published heads, fetched if needed."""
    return find_model(name, check_draft)


def check_draft(metadata: Mapping[str, Any]) -> None:
    """Raises ValueError if these are metadata of neither a model that surefoot runs nor an EAGLE-3 or Medusa head."""
    if not is_eagle_config(metadata) and not is_medusa_config(metadata):
        check_supported(metadata)


def _load_eagle(path: Path, target: Loaded, float_format: str) -> EagleHead:
    file = open_eagle(path)
    if file.target:
        LOG.info("the head was trained for %s", file.target)
    return load_eagle(target.backend, file, target.model, to_format(float_format))
