"""What `speculate` names: off, auto, lookup, or draft:MODEL."""

from dataclasses import dataclass

from surefoot.api.loading import Loaded, load_model
from surefoot.runner import DraftModel, Runner, slot_bytes
from surefoot.speculate import MOST_DRAFTS, Lookup, Preferring, Speculator

OFF, AUTO, LOOKUP, DRAFT = "off", "auto", "lookup", "draft:"
SHARE_OF_MEMORY = 0.15  # of what the target's keys and values may take, for the draft model's
DRAFT_CHUNK = 512
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Speculation:
    """How drafts are made. draft: the draft model, if there is one."""

    name: str
    draft: Loaded | None = None

    @property
    def most_drafts(self) -> int:
        return 0 if self.name == OFF else MOST_DRAFTS

    def share(self, kv_bytes: int) -> int:
        """Of the memory for keys and values, what the draft model takes."""
        return int(kv_bytes * SHARE_OF_MEMORY) if self.draft is not None else 0

    def start(self, target: Loaded, max_running: int, max_context: int, nbytes: int) -> Speculator | None:
        """nbytes: for the draft model's keys and values."""
        if self.name == OFF:
            return None
        if self.draft is None:
            return Speculator(Lookup)
        config = self.draft.model.config
        token_bytes = sum(slot_bytes(target.backend, config, block_size=BLOCK_SIZE).values())
        num_tokens = min(nbytes // token_bytes, max_running * max_context)
        if num_tokens < DRAFT_CHUNK:
            raise MemoryError(f"{nbytes >> 20} MiB are too few for the draft model's keys and values: free memory")
        runner = Runner(target.backend, self.draft.model, num_tokens, max_running, DRAFT_CHUNK, block_size=BLOCK_SIZE)
        vocab_size = target.model.config.vocab_size
        return Speculator(lambda: Preferring(Lookup(), DraftModel(runner, vocab_size)))


def load_speculation(name: str, target: Loaded, float_format: str) -> Speculation:
    """Raises ValueError if there is no such way, or the draft model speaks other tokens."""
    if name in (OFF, AUTO, LOOKUP):
        return Speculation(name)
    path = name.removeprefix(DRAFT)
    if not name.startswith(DRAFT) or not path:
        raise ValueError(f"speculate is {OFF}, {AUTO}, {LOOKUP} or {DRAFT}MODEL, not {name!r}")
    draft = load_model(path, float_format, None, None, backend=target.backend)
    pairs = zip(target.tokenizer.pieces, draft.tokenizer.pieces, strict=False)
    if num_other := sum(one != other for one, other in pairs):
        raise ValueError(f"{path} cannot draft for this model: {num_other} of its tokens are others")
    return Speculation(name, draft)
