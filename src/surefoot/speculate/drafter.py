"""The protocol of drafters, which guess how a text continues. A wrong guess costs time, nothing else."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from surefoot.core import BlockTable, Request, SampleKey
from surefoot.ops.arrays import F32


class DraftOffer(NamedTuple):
    """What a drafter could draft for a sample."""

    max_depth: int  # tokens
    kind: int = 0  # drafts of one kind are accepted about equally often


NO_DRAFT = DraftOffer(0)


class TargetRow(NamedTuple):
    """The target's row that a sample's last token was sampled from. Valid until the next step."""

    hidden: F32  # after the last layer, before the last norm; or what the target's drafting layer reads
    tables: tuple[BlockTable, ...] = ()  # the sample's blocks of keys and values, one table per group


class Drafter(Protocol):
    """Follows each sample's text from `start` to `end`. A preempted sample ends, and starts again.

    In between, each step calls `advance`, and then `offers` and `draft` if drafts may pay.
    """

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        """Follow a sample. tokens: its prompt and output so far."""

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        """Append sampled tokens. row: the target's row that the last token was sampled from, if known."""

    def end(self, key: SampleKey) -> None: ...

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        """An offer for each sample, of at most `max_depth` tokens. Must be quick: it is called at every step."""

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts of at most these lengths, for samples of the last call of `offers`."""
