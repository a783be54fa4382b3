"""The interface between scheduler and runner as plain data: a step's plan and its result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from surefoot.core.request import FinishReason, Request, SampleKey

BlockTable = tuple[int, ...]
NO_BLOCK = -1  # in a table: these tokens have left the sliding window, nothing reads them
BAND_ROWS = 16  # rows that matrix kernels process together: one row costs nearly as much as all


class BlockCopy(NamedTuple):
    """Copy a whole block, in every layer of its group, before the step writes anything."""

    group: int  # of the layout
    source: int  # block id
    target: int  # block id


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
    """One per group of the layout: the token at position p lies in block tables[g][p // block_size]. An unchanged table
    is the same object as in the sample's previous chunk."""
    num_logits: int  # last tokens whose logits are computed: 0 inside a prompt, 1 + drafts when decoding
    samples: tuple[int, ...]
    """The request's samples that sample a token from the logits: none, one, or all n at the end of the prompt. There,
    the only sample of an embedding ends without logits."""
    states: ChunkStates = NO_STATES


class RowStart(NamedTuple):
    """A sample that takes a row of the runner."""

    key: SampleKey
    request: Request
    tokens: tuple[int, ...]  # the prompt and the output so far


class Delta(NamedTuple):
    """The new tokens of a sample in a step."""

    key: SampleKey
    tokens: tuple[int, ...]  # a stop token is last
    reason: FinishReason | None = None  # why it ended, if it did
    num_cached: int = 0  # if it ended: prompt tokens that came from the prefix cache


@dataclass(frozen=True)
class StepPlan:
    """What the runner does in a step: free rows, take rows, copy blocks, run chunks, in that order."""

    chunks: Sequence[Chunk] = ()
    copies: Sequence[BlockCopy] = ()  # in this order
    starts: Sequence[RowStart] = ()
    ends: Sequence[SampleKey] = ()  # samples whose rows are freed
    dropped: Sequence[Delta] = ()  # samples that a cancellation or a deadline ended before this step

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


class Output(NamedTuple):
    """The tokens that a step sampled for one sample."""

    key: SampleKey
    tokens: tuple[int, ...]
    """The accepted drafts and one more token. A negative token: its logits were not finite. No token: the embedding is
    complete."""
    drafts: tuple[int, ...] = ()  # draft tokens for the next step to verify


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    outputs: Sequence[Output]  # one for each sample of each chunk, in the plan's order
    elapsed_ms: float
    failed: Collection[SampleKey] = ()  # chunks that failed: their outputs are void, and their requests end
    deferred: Collection[SampleKey] = ()  # chunks that could not sample yet: their outputs are void, planned again
    stopped: bool = False  # the step was interrupted: nothing counts as computed, all chunks are planned again


class Backlog(NamedTuple):
    """The prompt tokens that a scheduler has yet to compute."""

    num_tokens: int
    token_ms: float  # predicted time for each


class Load(NamedTuple):
    """How busy a scheduler is."""

    num_running: int = 0
    num_waiting: int = 0
    kv_use: float = 0.0  # fraction of blocks in use, in the fullest group
    num_preemptions: int = 0
    longest_step_ms: float = 0.0  # predicted duration of the longest step that may be planned now
    kv_cached: float = 0.0  # fraction of blocks with prefixes that no request holds, in the same group


class Phase(Enum):
    """What a sample does between steps."""

    QUEUE = "queue"  # waits for a row and blocks
    PREFILL = "prefill"  # has prompt tokens to compute, or tokens from before a preemption
    DECODE = "decode"


class SampleStatus(NamedTuple):
    """Where a sample stands between steps."""

    key: SampleKey
    phase: Phase
    num_computed: int  # tokens of prompt and answer whose keys and values are there
    num_cached: int  # prompt tokens that came from the prefix cache
