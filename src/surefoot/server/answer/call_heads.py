"""Heads of tool calls: where a call begins in a model's text.

A head is the opening of the model's form (call_forms.py), or the beginning of a call in plain JSON up to its arguments:
`{"name": "TOOL", "arguments":`. Plain JSON counts in a code block anywhere, or at the very beginning of the text. Its
outer braces may be doubled, as in the examples of some templates. The grammar and the parser must find the same heads,
so both are defined here: a regex for the grammar, and `HeadFinder`, which reads text piece by piece.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

FENCE = "```"
MOST_SPACES = 64  # in one place of a head
KEYS = ("arguments", "parameters")
_SPACES = " \n\t"
_SPACE = rf"[ \n\t]{{0,{MOST_SPACES}}}"


class Style(Enum):
    TAGGED = "tagged"
    FENCED = "fenced"
    BARE = "bare"


def head_regex(style: Style, name: str, num_braces: int) -> str:
    """The head of an untagged call, as a regex in llguidance's notation."""
    parts = ["\\{" * num_braces, '"name"', ":", f'"{re.escape(name)}"', ",", f'"({"|".join(KEYS)})"', ":"]
    fence = f"{FENCE}(json)?{_SPACE}" if style is Style.FENCED else ""
    return fence + _SPACE.join(parts)


@dataclass(frozen=True)
class CallHead:
    """A complete head."""

    style: Style
    name: str = ""  # of the tool; empty for a tagged call, whose name follows the tag
    num_braces: int = 1  # that open the call, and close it


@dataclass(frozen=True)
class _PartialHead:
    """The text so far may become a head."""


Words = tuple[str, ...]  # alternatives: the first that fits comes next
BRACES: Words = ("{{", "{")


class _HeadPattern:
    """words: the parts of the head, with white space between them. names: the part that is the tool's name."""

    def __init__(self, style: Style, words: Sequence[Words], names: Words = ()) -> None:
        self._style = style
        self._words = words
        self._names = names

    def read(self, text: str, place: int) -> tuple[CallHead | _PartialHead | None, int]:
        """The head that begins at this place, complete or partial, and where it ends."""
        name, num_braces = "", 1
        for number, words in enumerate(self._words):
            if number:
                place = _after_spaces(text, place)
            rest = text[place : place + max(map(len, words))]
            if any(len(word) > len(rest) and word.startswith(rest) for word in words):
                return _PartialHead(), place
            word = next((word for word in words if rest.startswith(word)), None)
            if word is None:
                return None, place
            name = word.strip('"') if words is self._names else name
            num_braces = len(word) if words is BRACES else num_braces
            place += len(word)
        return CallHead(self._style, name, num_braces), place


def _after_spaces(text: str, place: int) -> int:
    end = place
    while end < len(text) and end - place < MOST_SPACES and text[end] in _SPACES:
        end += 1
    return end


class HeadFinder:
    """Finds heads in text that arrives piece by piece. Text that may be the beginning of a head is held back.

    plain: tools whose calls may come untagged. opening: of tagged calls; empty if there are none.
    """

    def __init__(self, plain: Sequence[str], opening: str) -> None:
        names, keys = tuple(f'"{name}"' for name in plain), tuple(f'"{key}"' for key in KEYS)
        call = (BRACES, ('"name"',), (":",), names, (",",), keys, (":",))
        self._tagged = _HeadPattern(Style.TAGGED, [(opening,)])
        self._first = opening[:1]
        self._fenced = _HeadPattern(Style.FENCED, [(f"{FENCE}json", FENCE), *call], names)
        self._bare = _HeadPattern(Style.BARE, call, names)
        self._reads_plain = bool(plain)
        self._held = ""
        self._at_start = True  # nothing but white space so far, or since the last call

    def feed(self, text: str) -> tuple[str, CallHead | None, str]:
        """The text before a head, the head once it is complete, and the text after it."""
        text = self._held + text
        for place, character in enumerate(text):
            head = self._head_at(character)
            found, end = head.read(text, place) if head is not None else (None, 0)
            if isinstance(found, CallHead):
                self._held, self._at_start = "", True
                return text[:place], found, text[end:]
            if found is not None:
                self._held = text[place:]
                return text[:place], None, ""
            self._at_start = self._at_start and character in _SPACES
        self._held = ""
        return text, None, ""

    def _head_at(self, character: str) -> _HeadPattern | None:
        if character == self._first:
            return self._tagged
        if self._reads_plain and character == FENCE[0]:
            return self._fenced
        return self._bare if self._reads_plain and self._at_start and character == "{" else None

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held
