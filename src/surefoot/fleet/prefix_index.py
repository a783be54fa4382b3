"""Which replicas hold which blocks: one map from a block's name to its holders.

A replica that holds a block holds all blocks before it, since prefix trees lose leaves first. So the holders of a
prompt's blocks become fewer with depth. Where that is not so (reports are late), a choice takes longer than it might;
no answer depends on it.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Replicas = NDArray[np.int32]  # numbers of replicas, in no order
Depths = list[tuple[int, Replicas]]  # number of blocks, replicas that hold all of them
NOBODY: Replicas = np.zeros(0, np.int32)


class PrefixIndex:
    """Blocks are nearly all held by one replica. These share one array, so that a block costs its entry, and a place
    in the list of its replica's names."""

    def __init__(self) -> None:
        self._holders: dict[int, Replicas] = {}
        self._alone: dict[int, Replicas] = {}
        self._names = defaultdict[int, list[int]](list)  # by replica; it holds some of them no longer
        self._num_gone = Counter[int]()  # of each list, at most

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, replica: int, names: Iterable[int]) -> None:
        holders, alone, listed = self._holders, self._only(replica), self._names[replica]
        for name in names:
            before = holders.get(name)
            if before is None:
                holders[name] = alone
            elif replica not in before:
                holders[name] = np.append(before, alone)
            else:
                continue
            listed.append(name)

    def remove(self, replica: int, names: Sequence[int]) -> None:
        alone = self._only(replica)
        for name in names:
            before = self._holders.get(name)
            if before is alone:
                del self._holders[name]
            elif before is not None:
                self._set(name, before[before != replica])
        self._num_gone[replica] += len(names)
        if 2 * self._num_gone[replica] > len(self._names[replica]):
            self._list_anew(replica)

    def _list_anew(self, replica: int) -> None:
        holders, alone = self._holders, self._only(replica)
        # Nearly all are found by identity: a look into an array takes a microsecond, and streams wait meanwhile.
        held = (name for name in self._names[replica] if (by := holders.get(name, NOBODY)) is alone or replica in by)
        self._names[replica] = list(dict.fromkeys(held))
        self._num_gone[replica] = 0

    def remove_replica(self, replica: int) -> None:
        """Looks at this replica's names alone: a gateway that stands still for seconds loses its streams."""
        self.remove(replica, self._names.pop(replica, []))

    def _set(self, name: int, replicas: Replicas) -> None:
        if len(replicas) > 1:
            self._holders[name] = replicas
        elif len(replicas):
            self._holders[name] = self._only(int(replicas[0]))
        else:
            del self._holders[name]

    def _only(self, replica: int) -> Replicas:
        if replica not in self._alone:
            self._alone[replica] = np.array([replica], np.int32)
        return self._alone[replica]

    def depths(self, names: Sequence[int]) -> Depths:
        """(number of blocks, replicas that hold all of them), each set of replicas once, shallow ones first.

        Looks up the logarithm of the prompt's length for each set, not every block.
        """
        found: Depths = []
        start = 0
        while start < len(names) and (first := self._holders.get(names[start])) is not None:
            fewer = bisect_left(
                range(len(names)), True, start + 1, key=lambda depth: self._has_fewer(names[depth], first)
            )
            found.append((fewer, self._holders[names[fewer - 1]]))
            start = fewer
        return found

    def _has_fewer(self, name: int, than: Replicas) -> bool:
        holders = self._holders.get(name)
        return holders is None or len(holders) < len(than)
