"""Where calls of tools begin in what a model says.

A head is a tag, or the first keys of a call that is written as plain JSON up to its arguments: `{"name": "TOOL",
"arguments":`, in a code block anywhere or with nothing said before it. The grammar and the reader must find the same
heads, so both are made here: as a regex, and as something that reads text piece by piece.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

BEGIN, FENCE = "<tool_call>", "```"
MOST_SPACES = 64  # in one place of a head
KEYS = ("arguments", "parameters")
_SPACES = " \n\t"
_SPACE = rf"[ \n\t]{{0,{MOST_SPACES}}}"


class Style(Enum):
    TAGGED = "tagged"
    FENCED = "fenced"
    BARE = "bare"


def head_regex(style: Style, name: str) -> str:
    """In llguidance's notation, of a call that is not tagged."""
    parts = ["\\{", '"name"', ":", f'"{re.escape(name)}"', ",", f'"({"|".join(KEYS)})"', ":"]
    fence = f"{FENCE}(json)?{_SPACE}" if style is Style.FENCED else ""
    return fence + _SPACE.join(parts)


@dataclass(frozen=True)
class Found:
    """A head that has come whole. name: the tool's, unless tagged."""

    style: Style
    name: str = ""


@dataclass(frozen=True)
class _Partial:
    """The text may go on as a head."""


Words = tuple[str, ...]  # one of them comes next


class _Head:
    """words: what it is made of, with white space between. names: those of its words that name the tool."""

    def __init__(self, style: Style, words: Sequence[Words], names: Words = ()) -> None:
        self._style = style
        self._words = words
        self._names = names

    def read(self, text: str, place: int) -> tuple[Found | _Partial | None, int]:
        """What begins at this place, and where it ends."""
        name = ""
        for number, words in enumerate(self._words):
            if number:
                place = _after_spaces(text, place)
            rest = text[place : place + max(map(len, words))]
            if any(len(word) > len(rest) and word.startswith(rest) for word in words):
                return _Partial(), place
            word = next((word for word in words if rest.startswith(word)), None)
            if word is None:
                return None, place
            name = word.strip('"') if words is self._names else name
            place += len(word)
        return Found(self._style, name), place


def _after_spaces(text: str, place: int) -> int:
    end = place
    while end < len(text) and end - place < MOST_SPACES and text[end] in _SPACES:
        end += 1
    return end


class HeadFinder:
    """Text before a head; what may be a head's beginning is held back. plain: tools whose calls may come untagged."""

    def __init__(self, plain: Sequence[str]) -> None:
        names, keys = tuple(f'"{name}"' for name in plain), tuple(f'"{key}"' for key in KEYS)
        call = (("{",), ('"name"',), (":",), names, (",",), keys, (":",))
        self._tagged = _Head(Style.TAGGED, [(BEGIN,)])
        self._fenced = _Head(Style.FENCED, [(f"{FENCE}json", FENCE), *call], names)
        self._bare = _Head(Style.BARE, call, names)
        self._reads_plain = bool(plain)
        self._held = ""
        self._at_start = True  # nothing but white space so far, or since the last call

    def feed(self, text: str) -> tuple[str, Found | None, str]:
        """The text before a head, the head once it has come whole, and what follows it."""
        text = self._held + text
        for place, character in enumerate(text):
            head = self._head_at(character)
            found, end = head.read(text, place) if head is not None else (None, 0)
            if isinstance(found, Found):
                self._held, self._at_start = "", True
                return text[:place], found, text[end:]
            if found is not None:
                self._held = text[place:]
                return text[:place], None, ""
            self._at_start = self._at_start and character in _SPACES
        self._held = ""
        return text, None, ""

    def _head_at(self, character: str) -> _Head | None:
        if character == BEGIN[0]:
            return self._tagged
        if self._reads_plain and character == FENCE[0]:
            return self._fenced
        return self._bare if self._reads_plain and self._at_start and character == "{" else None

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held
