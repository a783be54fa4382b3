"""Prepares a model's text for a terminal: wrapped by words as it streams, and without control characters.

Written by hand because rich and textwrap wrap whole texts, and this text is shown before its end is known.
"""

import re
from collections.abc import Callable
from typing import Protocol

from rich.cells import cell_len

TAB = 8
JOINER = "\u200d"  # joins the emoji on both sides into one
OPENING_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^`]*$")
FENCE_LINE = 256  # characters of a line that are looked at for a fence
# Line feeds and tabs are layout. A carriage return shows nothing: it belongs to a line feed, or would hide a line.
PICTURES = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x0D: None,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str) -> str:
    """The text with control characters replaced by visible symbols (ESC by ␛): a terminal obeys none of them."""
    return text.translate(PICTURES)


class Layout(Protocol):
    """Turns the pieces of an answer into the text to write."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str:
        """The text that was held back."""


class Verbatim:
    """Every character as it is: for pipes and files."""

    def feed(self, text: str) -> str:
        return text

    def finish(self) -> str:
        return ""


class WordWrap:
    """Breaks lines between words. A word is held back until it ends.

    width: cells of a line, asked for at each word, since windows change their size. A break takes the place of the
    spaces where it falls. A word longer than a line is cut; between wide characters a line may break anywhere. Lines
    between code fences stay as they are.
    """

    def __init__(self, width: Callable[[], int], line_break: str = "\n") -> None:
        self._width = width
        self._break = line_break
        self._column = 0  # cells of the line so far, without the spaces and the word below
        self._spaces = ""
        self._word = ""
        self._word_cells = 0
        self._line = ""  # the beginning of the source's line, to tell a fence
        self._fence = ""  # that opened the code block we are in
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        for char in visible(text):
            if char == "\n":
                self._end_line()
                continue
            if len(self._line) < FENCE_LINE:
                self._line += char
            if self._fence:
                self._out.append(char)
            elif char in " \t":
                self._place_word()
                self._spaces += char
            else:
                self._add(char)
        return self._drain()

    def finish(self) -> str:
        self._place_word()
        self._place_spaces()
        return self._drain()

    def _drain(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    def _end_line(self) -> None:
        self._place_word()
        self._place_spaces()
        self._out.append("\n")
        self._column = 0
        self._follow_fences()
        self._line = ""

    def _follow_fences(self) -> None:
        line = self._line.strip()
        if not self._fence:
            opening = OPENING_FENCE.match(self._line)
            self._fence = opening[1] if opening else ""
        elif line.startswith(self._fence) and not line.strip(self._fence[0]):
            self._fence = ""

    def _add(self, char: str) -> None:
        """To the word, or to the next one where a line may break before it."""
        cells = cell_len(char)
        joined = self._word.endswith(JOINER)
        beside_wide = cells == 2 or (cells == 1 and self._word_cells == 2 and cell_len(self._word[0]) == 2)
        if (beside_wide and not joined) or cell_len(self._word + char) > self._width():
            self._place_word()
        self._word += char
        self._word_cells = cell_len(self._word)

    def _place_word(self) -> None:
        if not self._word:
            return
        start = _after(self._column, self._spaces)
        if start + self._word_cells > self._width():
            if self._column:
                self._out.append(self._break)
            start, self._column, self._spaces = 0, 0, ""
        self._out += (self._spaces, self._word)
        self._column = start + self._word_cells
        self._spaces, self._word, self._word_cells = "", "", 0

    def _place_spaces(self) -> None:
        """At a line's end, unless they would begin another."""
        if _after(self._column, self._spaces) <= self._width():
            self._out.append(self._spaces)
        self._spaces = ""


def _after(column: int, spaces: str) -> int:
    for char in spaces:
        column += TAB - column % TAB if char == "\t" else 1
    return column
