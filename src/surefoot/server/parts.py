"""What an answer's text is made of: reasoning, content, calls of tools. Text comes in piece by piece, parts go out.

What comes out depends on the text alone, not on how it was cut.
"""

from dataclasses import dataclass
from typing import Any, Protocol

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True)
class Delta:
    """What a piece of text added. tool_calls: in OpenAI's streaming form, one entry for each call, in order."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)

    def __add__(self, other: "Delta") -> "Delta":
        calls = _joined(self.tool_calls, other.tool_calls)
        return Delta(self.content + other.content, self.reasoning + other.reasoning, calls)


def _joined(calls: tuple[dict[str, Any], ...], more: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """One entry for each call: clients take a second entry of the same event for another call."""
    if not calls or not more or calls[-1]["index"] != more[0]["index"]:
        return calls + more
    first, function = more[0], calls[-1]["function"]
    arguments = function["arguments"] + first["function"]["arguments"]
    return (*calls[:-1], {**calls[-1], "function": {**function, "arguments": arguments}}, *more[1:])


class TagFinder:
    """Text before a tag; what may be the tag's beginning is held back."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text before the tag, and once the tag has come, what follows it."""
        text = self._held + text
        before, found, after = text.partition(self._tag)
        if found:
            self._held = ""
            return before, after
        longest = min(len(self._tag) - 1, len(text))
        held = next((count for count in range(longest, 0, -1) if text.endswith(self._tag[:count])), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class Parser(Protocol):
    def feed(self, text: str) -> Delta: ...
    def finish(self) -> Delta:
        """What was held back, once nothing more comes."""


class Chain:
    """Reasoning first; what the first parser takes for content, the second looks at."""

    def __init__(self, first: Parser, second: Parser) -> None:
        self._first = first
        self._second = second

    def feed(self, text: str) -> Delta:
        return self._pass(self._first.feed(text))

    def finish(self) -> Delta:
        return self._pass(self._first.finish()) + self._second.finish()

    def _pass(self, delta: Delta) -> Delta:
        content = self._second.feed(delta.content) if delta.content else Delta()
        return Delta(reasoning=delta.reasoning) + content


class ReasoningParser:
    """Splits <think>…</think> at an answer's beginning from what follows. is_open: the prompt began it already."""

    def __init__(self, is_open: bool) -> None:
        self._state = "inside" if is_open else "before"
        self._text = ""  # before: as long as it may become the tag
        self._end = TagFinder(END_THINK)
        self._strip = is_open

    def feed(self, text: str) -> Delta:
        if self._state == "before":
            self._text += text
            start = self._text.lstrip()
            if not start or (len(start) < len(THINK) and THINK.startswith(start)):
                return Delta()
            text, self._text = self._text, ""
            self._state = "inside" if start.startswith(THINK) else "content"
            if self._state == "inside":
                text, self._strip = start.removeprefix(THINK), True
        if self._state == "inside":
            return self._inside(text)
        return Delta(self._stripped(text))

    def _inside(self, text: str) -> Delta:
        reasoning, rest = self._end.feed(text)
        reasoning = self._stripped(reasoning)
        if rest is None:
            return Delta(reasoning=reasoning)
        self._state, self._strip = "content", True
        return Delta(self._stripped(rest), reasoning)

    def _stripped(self, text: str) -> str:
        """Line breaks after a tag belong to neither part."""
        if self._strip:
            text = text.lstrip("\n")
            self._strip = not text
        return text

    def finish(self) -> Delta:
        if self._state == "inside":
            return Delta(reasoning=self._end.finish())
        text, self._text = self._text, ""
        return Delta(text)
