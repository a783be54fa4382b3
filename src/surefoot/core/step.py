"""All that scheduler and runner tell each other: a step's plan and its result, in plain data."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from surefoot.core.request import FinishReason, Request, SampleKey

BlockTable = tuple[int, ...]
NO_BLOCK = -1  # in a table: the tokens there have left the window, nothing reads them
BAND_ROWS = 16  # that the matrix kernels take together: one of them or all cost nearly the same


class BlockCopy(NamedTuple):
    """Copy a whole block of a group, in every layer of that group, before the step writes anything."""

    group: int
    source: int
    target: int


class Chunk(NamedTuple):
    """One request's tokens in one step: `tokens` stand at positions start, start + 1, ...

    tables: one per group of the layout; token at position p lies in block tables[g][p // block_size]. A table that has
    not changed is the same object as in the chunk before.
    num_logits: logits are wanted of the last so many tokens (0 inside a prompt, 1 + drafts when decoding).
    samples: which of the request's samples draw a token from them: none, one, or all n at the prompt's end (there, an
    embedding's only sample ends without logits).
    """

    key: SampleKey
    start: int
    tokens: tuple[int, ...]
    tables: tuple[BlockTable, ...]
    num_logits: int
    samples: tuple[int, ...]


class RowStart(NamedTuple):
    """A sample from now on in the runner's rows, with all its tokens so far (prompt, then what it had generated)."""

    key: SampleKey
    request: Request
    tokens: tuple[int, ...]


class Delta(NamedTuple):
    """What a sample gained at a step's end: its new tokens, and why it ended if it did (a stop token comes last)."""

    key: SampleKey
    tokens: tuple[int, ...]
    reason: FinishReason | None = None
    num_cached: int = 0  # when it ends: prompt tokens that were found in the cache


@dataclass(frozen=True)
class StepPlan:
    """In this order: rows of `ends` are given back, `starts` get rows, `copies` are made (in order), `chunks` run.

    dropped: samples that a cancellation or deadline ended at this boundary, for whoever waits for them.
    """

    chunks: Sequence[Chunk] = ()
    copies: Sequence[BlockCopy] = ()
    starts: Sequence[RowStart] = ()
    ends: Sequence[SampleKey] = ()
    dropped: Sequence[Delta] = ()

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


class Output(NamedTuple):
    """What one sample drew: the drafts that were accepted and one more token. A token below 0: its logits were broken.
    No token: its embedding is made.

    drafts: guesses at what follows, for the next step to verify.
    """

    key: SampleKey
    tokens: tuple[int, ...]
    drafts: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepResult:
    """outputs: one for each of each chunk's samples, in the plan's order.

    failed: chunks that were not computed, whatever their outputs say. Their requests end.
    deferred: chunks that could not draw yet, whatever their outputs say. They are planned again.
    stopped: nothing was computed, on request; all is to be planned again.
    """

    outputs: Sequence[Output]
    elapsed_ms: float
    failed: Collection[SampleKey] = ()
    deferred: Collection[SampleKey] = ()
    stopped: bool = False


class Load(NamedTuple):
    """How busy a planner is. kv_use: the share of blocks, in the group that has fewest to spare, that requests hold."""

    num_running: int = 0
    num_waiting: int = 0
    kv_use: float = 0.0
    num_preemptions: int = 0
