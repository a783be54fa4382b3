"""Everything that scheduler and runner tell each other: a step's plan and its result, as plain data."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from surefoot.core.request import FinishReason, Request, SampleKey

BlockTable = tuple[int, ...]
NO_BLOCK = -1  # in a table: the tokens there have left the window, nothing reads them
BAND_ROWS = 16  # rows that the matrix kernels take together: one of them costs nearly as much as all


class BlockCopy(NamedTuple):
    """Copy a whole block of a group, in every layer of that group, before the step writes anything."""

    group: int
    source: int
    target: int


class ChunkStates(NamedTuple):
    """The slots of states that a chunk reads and writes: never the same ones, so that a step can be repeated."""

    load: int = NO_BLOCK  # the state before its first token; NO_BLOCK: zeros
    saves: tuple[tuple[int, int], ...] = ()  # (row of the chunk, slot): where the state after that row goes


NO_STATES = ChunkStates()


class Chunk(NamedTuple):
    """One request's tokens in one step."""

    key: SampleKey
    start: int  # position of the first token
    tokens: tuple[int, ...]
    tables: tuple[BlockTable, ...]
    """One per group of the layout: the token at position p lies in block tables[g][p // block_size]. A table that has
    not changed is the same object as in the chunk before."""
    num_logits: int  # of the last tokens, logits are wanted: 0 inside a prompt, 1 + drafts when decoding
    samples: tuple[int, ...]
    """The request's samples that draw a token from the logits: none, one, or all n at the prompt's end. There, the only
    sample of an embedding ends without logits."""
    states: ChunkStates = NO_STATES


class RowStart(NamedTuple):
    """A sample that takes a row of the runner."""

    key: SampleKey
    request: Request
    tokens: tuple[int, ...]  # all so far: the prompt, then what it has generated


class Delta(NamedTuple):
    """What a sample gained in a step."""

    key: SampleKey
    tokens: tuple[int, ...]  # new ones; a stop token comes last
    reason: FinishReason | None = None  # why it ended, if it did
    num_cached: int = 0  # when it ends: prompt tokens that were cached


@dataclass(frozen=True)
class StepPlan:
    """What the runner does in a step: give back rows, take rows, copy blocks, run chunks, in that order."""

    chunks: Sequence[Chunk] = ()
    copies: Sequence[BlockCopy] = ()  # to be made in this order
    starts: Sequence[RowStart] = ()
    ends: Sequence[SampleKey] = ()  # samples that give back their rows
    dropped: Sequence[Delta] = ()  # samples that a cancellation or a deadline ended before this step

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


class Output(NamedTuple):
    """What one sample drew."""

    key: SampleKey
    tokens: tuple[int, ...]
    """The drafts that were accepted and one more token. A token below 0: its logits were not finite. No token: its
    embedding is complete."""
    drafts: tuple[int, ...] = ()  # guesses at what follows, for the next step to verify


@dataclass(frozen=True)
class StepResult:
    """What the runner did in a step."""

    outputs: Sequence[Output]  # one for each sample of each chunk, in the plan's order
    elapsed_ms: float
    failed: Collection[SampleKey] = ()  # chunks that were not computed, whatever their outputs say: their requests end
    deferred: Collection[SampleKey] = ()  # chunks that could not draw yet, whatever their outputs say: planned again
    stopped: bool = False  # nothing was computed, on request: everything is planned again


class Load(NamedTuple):
    """How busy a planner is."""

    num_running: int = 0
    num_waiting: int = 0
    kv_use: float = 0.0  # share of blocks that requests hold, in the group with the fewest to spare
    num_preemptions: int = 0
