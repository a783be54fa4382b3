"""How long a step of so many tokens takes, learnt from the steps taken."""

from itertools import pairwise

RATE = 0.3  # how far a measurement moves the mean
STEEPEST = 1.25  # a step of twice the tokens takes at most 2.5 times as long, whatever was measured once


class Speed:
    """Mean time by size of step, in ranges that double. Between ranges it is read off the line that joins them."""

    def __init__(self) -> None:
        self._points: dict[int, tuple[float, float]] = {}  # by bit length: mean tokens, mean ms

    def observe(self, num_tokens: int, elapsed_ms: float) -> None:
        if num_tokens < 1 or elapsed_ms <= 0:
            return
        size = num_tokens.bit_length()
        tokens, ms = self._points.get(size, (float(num_tokens), elapsed_ms))
        self._points[size] = (tokens + RATE * (num_tokens - tokens), ms + RATE * (elapsed_ms - ms))

    def _curve(self) -> list[tuple[float, float]]:
        """Points that rise, and no steeper than is believable: else one slow step would never be tried again."""
        curve: list[tuple[float, float]] = []
        for _, (tokens, ms) in sorted(self._points.items()):
            if curve:
                before, before_ms = curve[-1]
                ms = min(max(ms, before_ms), before_ms * max(1.0, STEEPEST * tokens / before))
            curve.append((tokens, ms))
        return curve

    def predict_ms(self, num_tokens: int) -> float | None:
        curve = self._curve()
        if not curve:
            return None
        if num_tokens <= curve[0][0]:
            return curve[0][1]
        for (left, left_ms), (right, right_ms) in pairwise(curve):
            if num_tokens <= right:
                return left_ms + (right_ms - left_ms) * (num_tokens - left) / (right - left)
        return curve[-1][1] * num_tokens / curve[-1][0]

    def tokens_within(self, target_ms: float) -> int | None:
        """The most tokens whose step is thought to end in time; sizes never seen are extrapolated in proportion."""
        curve = self._curve()
        if not curve:
            return None
        if target_ms < curve[0][1]:
            return int(curve[0][0] * target_ms / curve[0][1])
        for (left, left_ms), (right, right_ms) in pairwise(curve):
            if target_ms < right_ms:
                return int(left + (right - left) * (target_ms - left_ms) / (right_ms - left_ms))
        return int(curve[-1][0] * target_ms / curve[-1][1])
