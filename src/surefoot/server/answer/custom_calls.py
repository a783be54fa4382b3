"""Calls of custom tools, whose input is free text. The model writes it as a string in JSON, which is undone here."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from surefoot.server.answer.parsing import MessageDelta, Parser

CUSTOM = "custom"  # the type of such a call
_BEGIN = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*"')  # of the arguments, up to the text
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"  # the first half of a character of two
_WHOLE = re.compile(
    rf'(?:[^"\\]|{_HIGH}\\u[0-9a-fA-F]{{4}}|{_HIGH}(?=[^\\]|\\[^u])|\\u(?![dD][89abAB])[0-9a-fA-F]{{4}}|\\[^u])*'
)


class StringReader:
    """The text of the only argument, from pieces of JSON. What may be half a character is held back."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = self._is_done = False

    def feed(self, text: str) -> str:
        self._held += text
        if not self._is_inside:
            match = _BEGIN.match(self._held)
            if match is None:
                return ""
            self._is_inside, self._held = True, self._held[match.end() :]
        if self._is_done:
            return ""
        match = _WHOLE.match(self._held)
        assert match is not None
        self._held = self._held[match.end() :]
        self._is_done = self._held.startswith('"')
        whole: str = json.loads(f'"{match[0]}"', strict=False)
        return whole


class CustomInputs:
    """Wraps the parser of calls: those of custom tools get their type, and their input in place of the arguments."""

    def __init__(self, calls: Parser, names: Collection[str]) -> None:
        self._calls = calls
        self._names = names
        self._readers: dict[int, StringReader] = {}

    def feed(self, text: str) -> MessageDelta:
        return self._read(self._calls.feed(text))

    def finish(self) -> MessageDelta:
        return self._read(self._calls.finish())

    def _read(self, delta: MessageDelta) -> MessageDelta:
        return replace(delta, tool_calls=tuple(map(self._read_call, delta.tool_calls)))

    def _read_call(self, call: dict[str, Any]) -> dict[str, Any]:
        index, function = call["index"], call["function"]
        if "id" in call and function["name"] in self._names:
            self._readers[index] = StringReader()
        if index not in self._readers:
            return call
        text = self._readers[index].feed(function["arguments"])
        return {**call, "type": CUSTOM, "function": {**function, "arguments": text}}


def as_openai(call: dict[str, Any]) -> dict[str, Any]:
    """A call, or a piece of one, as OpenAI's clients read it."""
    if call.get("type") != CUSTOM:
        return call
    function = call["function"]
    named = {"name": function["name"]} if "name" in function else {}
    rest = {key: value for key, value in call.items() if key != "function"}
    return {**rest, "custom": {**named, "input": function["arguments"]}}
