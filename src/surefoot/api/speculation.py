"""The option `speculate`: off, auto (the model's own drafting layer, if there is one; lookup), lookup, draft:MODEL."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.api.loading import Loaded, load_model
from surefoot.models import Model
from surefoot.runner import DraftHead, DraftModel, HeadWeights, MtpDrafter, Runner, SessionRunner, load_head, slot_bytes
from surefoot.scheduler import SchedulerConfig
from surefoot.speculate import MAX_STEP_DRAFTS, DepthController, Drafter, LookupDrafter, LookupFirst, Speculator

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

    @property
    def max_drafts(self) -> int:
        return 0 if self.name == OFF else MAX_STEP_DRAFTS

    def fitted(self, model: Model) -> Model:
        """The model with its own drafting layer only if that one drafts."""
        return model if self.name == AUTO else model.without_mtp()

    def share(self, kv_bytes: int) -> int:
        """The part of the memory for keys and values that the draft model takes."""
        return int(kv_bytes * MEMORY_FRACTION) if self.draft is not None else 0

    def start(self, target: Runner, scheduling: SchedulerConfig, nbytes: int) -> Speculator | None:
        """The speculator; None if speculation is off. nbytes: memory for the draft model's keys and values."""
        drafter = None if self.name == OFF else self._drafter(target, scheduling, nbytes)
        return None if drafter is None else Speculator(drafter, DepthController(scheduling.step_shape))

    def _drafter(self, target: Runner, scheduling: SchedulerConfig, nbytes: int) -> Drafter:
        if self.head is not None:
            return LookupFirst(LookupDrafter(), DraftHead(target.backend, target.model, self.head))
        if self.draft is not None:
            runner = _draft_runner(self.draft, scheduling.max_running, scheduling.max_context, nbytes)
            return LookupFirst(LookupDrafter(), DraftModel(runner, target.model.config.vocab_size))
        if target.model.mtp is not None:
            return LookupFirst(LookupDrafter(), MtpDrafter(target))
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
    draft = load_model(path, float_format, None, None, backend=target.backend)
    pairs = zip(target.tokenizer.pieces, draft.tokenizer.pieces, strict=False)
    if num_other := sum(piece != other for piece, other in pairs):
        raise ValueError(f"{path} cannot draft for this model: {num_other} of its tokens differ")
    return Speculation(name, draft)
