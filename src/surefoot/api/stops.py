"""Stop strings in text that arrives piece by piece."""

from collections.abc import Sequence


class StopFinder:
    """Passes text on once it cannot be part of a stop string, up to the first stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""  # may be the beginning of a stop string
        self.found: str | None = None  # the first stop string in the text

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        text = self._held + text
        matches = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            start, self.found = min(matches)
            self._held = ""
            return text[:start]
        safe = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of the text that is a prefix of the stop string."""
    longest = min(len(stop) - 1, len(text))
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
