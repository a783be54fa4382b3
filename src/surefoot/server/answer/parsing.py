"""Parsers that split an answer's text into reasoning, content and tool calls, piece by piece.

The result depends on the text alone, not on how it was cut into pieces.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True)
class MessageDelta:
    """What a piece of text adds to a message."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()  # in OpenAI's streaming form, one entry for each call, in order

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)

    def __add__(self, other: "MessageDelta") -> "MessageDelta":
        calls = _joined(self.tool_calls, other.tool_calls)
        return MessageDelta(self.content + other.content, self.reasoning + other.reasoning, calls)


def _joined(calls: tuple[dict[str, Any], ...], more: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Both lists as one, with one entry for each call: clients take a second entry in the same event for another
    call."""
    if not calls or not more or calls[-1]["index"] != more[0]["index"]:
        return calls + more
    first, function = more[0], calls[-1]["function"]
    arguments = function["arguments"] + first["function"]["arguments"]
    return (*calls[:-1], {**calls[-1], "function": {**function, "arguments": arguments}}, *more[1:])


class TagFinder:
    """Finds a tag in text that arrives piece by piece. Text that may be the tag's beginning is held back."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text before the tag, and the text after it once the tag is complete."""
        text = self._held + text
        before, tag, after = text.partition(self._tag)
        if tag:
            self._held = ""
            return before, after
        longest = min(len(self._tag) - 1, len(text))
        held = next((count for count in range(longest, 0, -1) if text.endswith(self._tag[:count])), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class LineBreaks:
    """Drops the line breaks that follow a tag, which belong to neither part."""

    def __init__(self, follow: bool = False) -> None:
        self.follow = follow  # the text goes on right after a tag

    def drop(self, text: str) -> str:
        if self.follow:
            text = text.lstrip("\n")
            self.follow = not text
        return text


class Parser(Protocol):
    def feed(self, text: str) -> MessageDelta: ...
    def finish(self) -> MessageDelta:
        """The text that was held back, at the end of the answer."""


class Chain:
    """Two parsers in a row: the second parses what the first takes for content."""

    def __init__(self, first: Parser, second: Parser) -> None:
        self._first = first
        self._second = second

    def feed(self, text: str) -> MessageDelta:
        return self._pass(self._first.feed(text))

    def finish(self) -> MessageDelta:
        return self._pass(self._first.finish()) + self._second.finish()

    def _pass(self, delta: MessageDelta) -> MessageDelta:
        content = self._second.feed(delta.content) if delta.content else MessageDelta()
        return MessageDelta(reasoning=delta.reasoning) + content


class ReasoningParser:
    """Splits <think>…</think> at the beginning of an answer from the rest. is_open: the prompt ends with <think>."""

    def __init__(self, is_open: bool) -> None:
        self._state = "inside" if is_open else "before"
        self._text = ""  # held back in the state "before", while it may become the tag
        self._end = TagFinder(END_THINK)
        self._breaks = LineBreaks(is_open)

    def feed(self, text: str) -> MessageDelta:
        if self._state == "before":
            self._text += text
            start = self._text.lstrip()
            if not start or (len(start) < len(THINK) and THINK.startswith(start)):
                return MessageDelta()
            text, self._text = self._text, ""
            self._state = "inside" if start.startswith(THINK) else "content"
            if self._state == "inside":
                text, self._breaks.follow = start.removeprefix(THINK), True
        if self._state == "inside":
            return self._inside(text)
        return MessageDelta(self._breaks.drop(text))

    def _inside(self, text: str) -> MessageDelta:
        reasoning, rest = self._end.feed(text)
        reasoning = self._breaks.drop(reasoning)
        if rest is None:
            return MessageDelta(reasoning=reasoning)
        self._state, self._breaks.follow = "content", True
        return MessageDelta(self._breaks.drop(rest), reasoning)

    def finish(self) -> MessageDelta:
        if self._state == "inside":
            return MessageDelta(reasoning=self._end.finish())
        text, self._text = self._text, ""
        return MessageDelta(text)


def whole_calls(deltas: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete calls, joined from their pieces."""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if "id" in delta:
            function = dict(delta["function"])
            calls.append({"id": delta["id"], "type": delta["type"], "function": function})
        else:
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls


def arguments_of(text: str) -> Any:
    """A call's arguments, parsed; empty for a call that was cut off for length."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}
