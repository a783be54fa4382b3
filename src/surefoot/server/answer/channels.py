"""Answers in channels, as gpt-oss writes them: each message names its channel, and special tokens part them.

What the model thinks is in the channel `analysis`; `final` and other channels are said to the user. A call is the last
message. Its form is a row of call_forms.py, so it is passed on as it is.
"""

from collections.abc import Callable, Collection, Mapping

from surefoot.server.answer.parsing import MessageDelta, TagFinder

CHANNEL, TEXT, END, START = "<|channel|>", "<|message|>", "<|end|>", "<|start|>"
THINKING = "analysis"
FINAL = f"{CHANNEL}final{TEXT}"
CALL = " "  # what a call begins with, after the role
TOKENS = (CHANNEL, TEXT, END, START)
_NEXT = f"{START}assistant"  # between two messages


def uses_channels(templates: Mapping[str, str], special: Collection[str]) -> bool:
    """Whether a model with these templates and special tokens answers in channels."""
    shown = f"{CHANNEL}{THINKING}{TEXT}"
    return all(token in special for token in TOKENS) and any(shown in source for source in templates.values())


def channel_rules(literal: Callable[[str], str], is_said: bool) -> str:
    """The beginning of a grammar, as Lark rules. The rule `answer` comes after it. is_said: it is what is said, without
    its channel."""
    said = f"{literal(FINAL)} answer" if is_said else "answer"
    thought = f'{literal(CHANNEL)} ("{THINKING}" | "commentary") {literal(TEXT)} WORDS {literal(END + _NEXT)}'
    return f"start: message* {said}\nmessage: {thought}\nWORDS: /(.|\\n)*/\n"


class ChannelParser:
    """Splits messages into reasoning and content."""

    def __init__(self) -> None:
        self._held = ""  # of what stands before a message's text
        self._in_text = self._is_thought = False
        self._end = TagFinder(END)

    def feed(self, text: str) -> MessageDelta:
        delta = MessageDelta()
        while text:
            more, text = self._inside(text) if self._in_text else self._before(text)
            delta += more
        return delta

    def finish(self) -> MessageDelta:
        return self._as_delta(self._end.finish()) if self._in_text else MessageDelta()

    def _as_delta(self, text: str) -> MessageDelta:
        return MessageDelta(reasoning=text) if self._is_thought else MessageDelta(text)

    def _before(self, text: str) -> tuple[MessageDelta, str]:
        self._held = text = self._held + text
        head = text.removeprefix(_NEXT)
        if _NEXT.startswith(text) or CHANNEL.startswith(head):
            return MessageDelta(), ""
        if head.startswith(CHANNEL) and TEXT not in head:
            return MessageDelta(), ""
        self._held, self._in_text, self._is_thought = "", True, False
        if not head.startswith(CHANNEL):
            return MessageDelta(), head.removeprefix(CALL)
        channel, _, rest = head.removeprefix(CHANNEL).partition(TEXT)
        self._is_thought = channel.strip() == THINKING
        return MessageDelta(), rest

    def _inside(self, text: str) -> tuple[MessageDelta, str]:
        before, after = self._end.feed(text)
        self._in_text = after is None
        return self._as_delta(before), after or ""
