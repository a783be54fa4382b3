"""Sessions: a runner that allocates its own blocks, for callers without a scheduler."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.core import NO_BLOCK
from surefoot.kv import BlockPool, blocks_for, window_blocks
from surefoot.models import Model
from surefoot.ops import Backend, KvForm, Sampled, SamplingRows, sample
from surefoot.ops.arrays import F32, I64
from surefoot.runner.runner import FlatStep, Runner, StepStates


@dataclass(eq=False)
class Session:
    """One request's tokens in the KV cache."""

    tables: Mapping[int, I64]  # block table by window
    max_tokens: int  # that it has blocks for
    num_tokens: int = 0  # computed so far
    slots: tuple[int, int] = (NO_BLOCK, NO_BLOCK)
    """State slots, in models with recurrent states: the current state, and where the next chunk saves its state."""


@dataclass(frozen=True)
class Work:
    """One session's chunk in a step."""

    session: Session
    tokens: Sequence[int]
    num_logits: int = 1  # how many of the last tokens need logits


class SessionRunner:
    """A runner with sessions. Opening a session reserves blocks for its whole length.

    The block table of a sliding window is a ring. Tokens behind the window are never read again, so their blocks are
    reused, and a session of any length takes one ring of blocks.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._width = runner.kv.table_width
        self._rings = _ring_blocks(runner.model, self._width, runner.max_chunk, runner.block_size)
        self._pools = {window: BlockPool(count) for window, count in runner.num_blocks.items()}
        self._slots = BlockPool(runner.num_slots)

    @classmethod
    def make(
        cls, backend: Backend, model: Model, num_tokens: int, max_sessions: int = 8, max_chunk: int = 512,
        kv_form: KvForm = KvForm.KEYS_TWO_LIMBS, record: bool = True, block_size: int = 64,
    ) -> "SessionRunner":  # fmt: skip
        """A runner with memory for `num_tokens` tokens, in one session or over all sessions."""
        width = blocks_for(num_tokens, block_size)
        rings = _ring_blocks(model, width, max_chunk, block_size)
        num_blocks = {
            window: min(ring, width) * max_sessions if window else width + max_sessions
            for window, ring in rings.items()
        }
        num_slots = 2 * max_sessions if model.config.states else 0
        return cls(Runner(backend, model, num_tokens, num_blocks, max_chunk, kv_form, record, block_size, num_slots))

    @property
    def max_tokens(self) -> int:
        """The most tokens that one session can hold."""
        return self._width * self.runner.block_size

    @property
    def num_free(self) -> dict[int, int]:
        """Blocks that no session holds, by window."""
        return {window: pool.num_free for window, pool in self._pools.items()}

    def open(self, max_tokens: int) -> Session:
        """A new session. Raises ValueError if it can never fit, MemoryError if other sessions hold the blocks."""
        blocks = blocks_for(max_tokens, self.runner.block_size)
        if blocks > self._width:
            raise ValueError(f"{max_tokens} tokens are more than the {self.max_tokens} there is room for")
        needed = {window: min(ring, blocks) for window, ring in self._rings.items()}
        has_slots = not self.runner.num_slots or self._slots.num_free > 1
        if not has_slots or any(self._pools[window].num_free < count for window, count in needed.items()):
            raise MemoryError(f"no room for {max_tokens} more tokens: close other requests first")
        session = Session({window: self._table(window, count) for window, count in needed.items()}, max_tokens)
        if self.runner.num_slots:
            session.slots = self._slots.allocate(), self._slots.allocate()
        return session

    def _table(self, window: int, count: int) -> I64:
        """A table that repeats `count` new blocks; a session never reaches the entries behind its last token."""
        pool = self._pools[window]
        return np.resize(np.array([pool.allocate() for _ in range(count)], np.int64), self._width)

    def close(self, session: Session) -> None:
        for window, table in session.tables.items():
            for block in sorted(set(table.tolist()), reverse=True):
                self._pools[window].release(block)
        if self.runner.num_slots:
            for slot in session.slots:
                self._slots.release(slot)

    # ---- a step ----

    def execute(self, works: Sequence[Work]) -> F32:
        """Logits of the requested rows, in the order of the works; valid until the next step."""
        self._check(works)
        windows = self.runner.model.config.windows
        step = FlatStep(
            [token for work in works for token in work.tokens],
            [work.session.num_tokens for work in works],
            [len(work.tokens) for work in works],
            [work.num_logits for work in works],
            {window: np.stack([work.session.tables[window] for work in works]) for window in windows},
            self._states(works) if self.runner.num_slots else None,
        )
        logits = self.runner.forward(step)
        for work in works:
            work.session.num_tokens += len(work.tokens)
            work.session.slots = work.session.slots[::-1]
        return logits

    def _states(self, works: Sequence[Work]) -> StepStates:
        """Only the state after a chunk's last token is saved, so a session cannot be rolled back."""
        loads = [work.session.slots[0] if work.session.num_tokens else NO_BLOCK for work in works]
        saves = [[*[NO_BLOCK] * (len(work.tokens) - 1), work.session.slots[1]] for work in works]
        return StepStates(loads, [slot for slots in saves for slot in slots])

    def _check(self, works: Sequence[Work]) -> None:
        max_chunk, vocab_size = self.runner.max_chunk, self.runner.model.config.vocab_size
        if len({id(work.session) for work in works}) < len(works):
            raise ValueError("a session can have one chunk in a step")
        for work in works:
            count, session = len(work.tokens), work.session
            if not 0 < count <= max_chunk or not 0 <= work.num_logits <= count:
                raise ValueError(f"a chunk has 1 to {max_chunk} tokens and logits of some of them, not {count}")
            if session.num_tokens and self.runner.model.config.sees_ahead:
                raise ValueError("this model's tokens see later ones: a session has one chunk, its whole text")
            if session.num_tokens + count > session.max_tokens:
                raise ValueError(f"the session was opened for {session.max_tokens} tokens, which this exceeds")
            if not 0 <= min(work.tokens) <= max(work.tokens) < vocab_size:
                raise ValueError(f"token ids must lie in [0, {vocab_size})")

    # ---- whole requests ----

    def prefill(self, session: Session, tokens: Sequence[int], chunks: Iterable[int] | None = None) -> F32:
        """Logits of the prompt's last token. chunks: lengths of the chunks; the longest possible by default."""
        max_chunk = self.runner.max_chunk
        lengths = iter(chunks) if chunks is not None else iter(lambda: max_chunk, 0)
        start, logits = 0, None
        while start < len(tokens):
            end = min(start + min(next(lengths, max_chunk), max_chunk), len(tokens))
            logits = self.execute([Work(session, tokens[start:end], int(end == len(tokens)))])
            start = end
        if logits is None:
            raise ValueError("a prompt has at least one token")
        return logits

    def decode(self, sessions: Sequence[Session], tokens: Sequence[int]) -> F32:
        """Append a token to each session. Returns logits [sessions, vocab]."""
        return self.execute([Work(session, [token]) for session, token in zip(sessions, tokens, strict=True)])

    def sample(self, logits: F32, rows: SamplingRows | None = None) -> Sampled:
        """The next tokens; greedy by default."""
        return sample(self.runner.backend, logits, rows or SamplingRows.of(len(logits)))

    def generate(self, tokens: Sequence[int], num_new: int, stop: Iterable[int] = ()) -> list[int]:
        """The prompt's greedy continuation, which ends before the first token of `stop`."""
        session = self.open(len(tokens) + num_new)
        stops, new = set(stop), list[int]()
        logits = self.prefill(session, tokens)
        while (token := int(self.sample(logits).tokens[0])) not in stops:
            new.append(token)
            if len(new) == num_new:
                break
            logits = self.decode([session], [token])
        self.close(session)
        return new


def _ring_blocks(model: Model, table_width: int, max_chunk: int, block_size: int) -> dict[int, int]:
    """The blocks of a session of maximum length, by window."""
    return {
        window: window_blocks(window, max_chunk, block_size) if window else table_width
        for window in model.config.windows
    }
