"""Which prompts this server holds, by the names that gateways give to blocks of text.

A gateway has no tokenizer, and names what it sees: 64 bytes of text after all text before them. The server knows which
block of tokens lies there, and whether its disk cache still has it.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice

from surefoot.fleet.frames import NameChanges

MOST_NAMES = 65_536
MOST_CHANGES = 16_384  # that are remembered; a gateway that has missed more gets all names
NUM_CHECKED = 256  # names in each report: whether the disk has dropped their blocks


class HeldNames:
    """Safe for threads."""

    def __init__(self, contains: Callable[[bytes], bool]) -> None:
        """contains: whether a block of tokens is held."""
        self._contains = contains
        self._digests: OrderedDict[int, bytes] = OrderedDict()  # the least recently checked or noted name first
        self._changes: deque[tuple[int, bool]] = deque(maxlen=MOST_CHANGES)  # name, whether it was added
        self._num_changes = 0
        self._lock = threading.Lock()

    def note(self, names: Sequence[int], digests: Sequence[bytes]) -> None:
        """A prompt was computed. names: of its text. digests: of its tokens' blocks. Text and tokens are taken to grow
        at one rate."""
        with self._lock:
            for number, name in enumerate(names, 1):
                if end := number * len(digests) // len(names):
                    if name not in self._digests:
                        self._change(name, is_added=True)
                    self._digests[name] = digests[end - 1]
                    self._digests.move_to_end(name)
            while len(self._digests) > MOST_NAMES:
                self._change(self._digests.popitem(last=False)[0], is_added=False)

    def changes(self, since: int) -> NameChanges:
        """since: the number that the last report ended with; 0 for a gateway's first."""
        with self._lock:
            checked = list(islice(self._digests.items(), NUM_CHECKED))
        gone = [name for name, digest in checked if not self._contains(digest)]
        with self._lock:
            for name, _ in checked:
                if name in self._digests:
                    self._digests.move_to_end(name)
            for name in gone:
                if self._digests.pop(name, None) is not None:
                    self._change(name, is_added=False)
            return self._report(since)

    def _report(self, since: int) -> NameChanges:
        num_missed = self._num_changes - since
        if since <= 0 or not 0 <= num_missed <= len(self._changes):
            return NameChanges(number=self._num_changes, is_whole=True, added=list(self._digests))
        last = dict(islice(self._changes, len(self._changes) - num_missed, None))
        added, removed = ([name for name, is_added in last.items() if is_added == kind] for kind in (True, False))
        return NameChanges(number=self._num_changes, added=added, removed=removed)

    def _change(self, name: int, *, is_added: bool) -> None:
        self._changes.append((name, is_added))
        self._num_changes += 1
