"""Waiting in tests: until something happens, never for a time that is thought to be enough."""

import time
from collections.abc import Callable

# Only what never happens takes this long. A shared machine may stand still for many seconds: that fails no test.
PATIENCE_S = 300.0


def wait_for(happened: Callable[[], object], what: str = "what was waited for", seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)
