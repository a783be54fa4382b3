"""Asks the system for memory of the NUMA nodes whose threads will use it.

Pages are asked for before they are touched; nothing is moved. To the system a request is a mapping of its own, of which
a process may have 65,530 by default (vm.max_map_count). So requests are counted.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from surefoot.machine import Placement

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
DEFAULT_MAP_COUNT = 65530

# Asks for the pages of an address and length from these nodes, in turn if there are several. Returns 0 or an errno.
Prefer = Callable[[int, int, Sequence[int]], int]


class Pages:
    """The memory of one backend."""

    def __init__(self, placement: Placement, prefer: Prefer, max_requests: int | None = None) -> None:
        """max_requests: None: half of the mappings that the system allows."""
        self._nodes = [share.node for share in placement.shares]
        self._prefer = prefer
        self._num_left = _max_requests() if max_requests is None else max_requests
        self.error = 0  # errno of the last request that was refused

    @property
    def are_placed(self) -> bool:
        """Whether there are several nodes."""
        return bool(self._nodes)

    def split(self, address: int, ends: Sequence[int]) -> None:
        """Each node's part on that node. ends: of the parts, in bytes from the address. After too many requests the
        bytes are spread instead."""
        self._num_left -= len(ends)
        if self._num_left < 0:
            self.spread(address, ends[-1])
            return
        for node, start, end in zip(self._nodes, (0, *ends), ends, strict=False):
            if end > start:
                self._ask(address + start, end - start, [node])

    def spread(self, address: int, nbytes: int) -> None:
        """On all nodes, page by page in turn."""
        if self._nodes:
            self._ask(address, nbytes, self._nodes)

    def _ask(self, address: int, nbytes: int, nodes: Sequence[int]) -> None:
        self.error = self._prefer(address, nbytes, nodes) or self.error


def _max_requests() -> int:
    try:
        return int(MAX_MAP_COUNT.read_text()) // 2
    except (OSError, ValueError):
        return DEFAULT_MAP_COUNT // 2
