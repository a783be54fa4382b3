"""What the scheduler asks of cached blocks outside of memory."""

from collections.abc import Sequence
from typing import Protocol

from surefoot.kv import BlockKey, Holding, PrefixNode


class ColdRead(Protocol):
    """Blocks on their way into the prefix tree."""

    @property
    def is_done(self) -> bool:
        """Whether all of them are in the tree, as far as they could be read."""

    def cancel(self) -> None:
        """No sample waits for them any more."""


class ColdBlocks(Protocol):
    """Cached blocks outside of memory."""

    def start_read(self, holding: Holding, keys: Sequence[BlockKey], cached: Sequence[PrefixNode]) -> ColdRead | None:
        """Begin to read the blocks of these keys that follow the cached ones; None if there are none."""

    def expect(self, holding: Holding, keys: Sequence[BlockKey]) -> None:
        """These blocks will be wanted, but not yet: they may be brought nearer meanwhile."""
