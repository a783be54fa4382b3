"""Stop strings in text that arrives piece by piece."""

from collections.abc import Sequence


class StopFinder:
    """Passes text on once it cannot be part of a stop string, up to the first stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        text = self._held + text
        matches = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if matches:
            place, self.found = min(matches)
            self._held = ""
            return text[:place]
        safe = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text with which the stop string begins."""
    longest = min(len(stop) - 1, len(text))
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
