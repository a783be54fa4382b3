"""A text's embedding from its tokens' hidden states."""

import numpy as np

from surefoot.ops.arrays import F32


class MeanPool:
    """The mean of hidden states, added in doubles one token after the other: how they were chunked does not show."""

    def __init__(self) -> None:
        self._sum = np.zeros(0)
        self._num_rows = 0

    def add(self, start: int, hidden: F32) -> None:
        """The states of tokens from `start` on. Those it has already, of a step that is run again, are passed over."""
        if not self._num_rows:
            self._sum = np.zeros(hidden.shape[1])
        for row in hidden[self._num_rows - start :]:
            self._sum += row
            self._num_rows += 1

    def mean(self) -> tuple[float, ...] | None:
        """None if it is not finite."""
        mean = (self._sum / self._num_rows).astype(np.float32)
        return tuple(mean.tolist()) if np.isfinite(mean).all() else None
