"""Grammars of free text, rewritten for the same text inside of a JSON string.

A custom tool's input is a string in the call's JSON, so its grammar must hold the escaped text. Each character has one
escaped form here. Escaped, a line's end and a quote begin with the same character, which a lexer without a second look
cannot tell apart. So all rules become terminals, of which llguidance makes one automaton. A grammar that is recursive,
or uses what is not known here, cannot be rewritten: then the input is any text.
"""

import json
import re

_WORD = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*")(?P<case>i\b)?
    |(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/(?P<flags>[a-z]*))
    |%import[ \t]+common\.(?P<common>\w+)
    |(?P<directive>%\w+)
    |(?P<alias>->[ \t]*\w+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<rest>.|\n)""",
    re.VERBOSE,
)
_ESCAPED = {"\n": r"\\n", "\t": r"\\t", "\r": r"\\r", "\f": r"\\f", "\b": r"\\b", '"': r"\\\"", "\\": r"\\\\"}
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_PLAIN = r'[^"\\\x00-\x1f]'
_CONTROL = r"\\u00[01][0-9a-f]"
_COMMON = {
    "LF": r"\n", "CR": r"\r", "NEWLINE": r"(\r?\n)+", "WS": r"[ \t\f\r\n]+", "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]", "INT": "[0-9]+", "LETTER": "[a-zA-Z]", "WORD": "[a-zA-Z]+", "CNAME": "[a-zA-Z_][a-zA-Z0-9_]*",
}  # fmt: skip


def quoted_lark(grammar: str) -> str:
    """The Lark grammar for the escaped text. Raises ValueError."""
    return "start: R_START\n" + "".join(map(_quoted_word, _WORD.finditer(grammar)))


def quoted_regex(regex: str) -> str:
    """A Lark grammar for the escaped text of one regex. Raises ValueError."""
    slashed = re.sub(r"(?<!\\)/", r"\/", regex)
    return f"start: /{_Regex(slashed, dot_all=False).quoted()}/"


def _quoted_word(match: re.Match[str]) -> str:
    if match["comment"] is not None or match["alias"] is not None:
        return ""
    if match["name"] is not None:
        return f"{'R' if match['name'].islower() else 'T'}_{match['name'].upper()}"
    if match["string"] is not None:
        text = json.loads(match["string"])
        return json.dumps(json.dumps(text, ensure_ascii=False)[1:-1], ensure_ascii=False) + (match["case"] or "")
    if match["regex"] is not None:
        body, flags = match["regex"][1 : -len(match["flags"]) - 1], match["flags"]
        if set(flags) - {"i", "s"}:
            raise ValueError(f"flags {flags}")
        return f"/{_Regex(body, 's' in flags).quoted()}/{'i' if 'i' in flags else ''}"
    if match["common"] is not None:
        if match["common"] not in _COMMON:
            raise ValueError(f"common.{match['common']}")
        return f"T_{match['common']}: /{_Regex(_COMMON[match['common']], dot_all=False).quoted()}/"
    if match["directive"] is not None:
        raise ValueError(match["directive"])
    return match[0]


class _Regex:
    """Reads a regex from the left and writes its form for escaped text."""

    def __init__(self, source: str, dot_all: bool) -> None:
        self._source = source
        self._dot_all = dot_all
        self._place = 0

    def quoted(self) -> str:
        parts = []
        while self._place < len(self._source):
            parts.append(self._next())
        return "".join(parts)

    def _take(self) -> str:
        if self._place >= len(self._source):
            raise ValueError("a regex that ends early")
        self._place += 1
        return self._source[self._place - 1]

    def _next(self) -> str:
        character = self._take()
        if character == "\\":
            return self._escape(self._take())
        if character == "[":
            return self._class()
        if character == ".":
            return _without("" if self._dot_all else "\n")
        if character == "(" and re.compile(r"\?[^:]").match(self._source, self._place):
            raise ValueError("a group of another kind")
        return _literal(character) if character == '"' else character

    def _escape(self, letter: str) -> str:
        if letter in "dw":
            return f"\\{letter}"
        if letter == "s":
            return rf"(?: |{'|'.join(_ESCAPED[space] for space in _SPACES)})"
        if letter == "S":
            return _without(_SPACES, r" ")
        if letter in _LETTERS:
            return _literal(_LETTERS[letter])
        if letter.isalnum():
            raise ValueError(f"\\{letter}")
        return _literal(letter) if letter in _ESCAPED else f"\\{letter}"

    def _class(self) -> str:
        is_negated = self._source.startswith("^", self._place)
        self._place += is_negated
        items: list[str] = []
        specials = ""
        while (character := self._take()) != "]" or not (items or specials):
            if character == "[":
                raise ValueError("a class in a class")
            item = self._class_item(character)
            if self._source.startswith("-", self._place) and not self._source.startswith("-]", self._place):
                self._take()
                last = self._class_item(self._take())
                if len(item) > 1 or len(last) > 1 or any(item <= special <= last for special in _ESCAPED):
                    raise ValueError("a range over characters that are escaped")
                items.append(f"{_in_class(item)}-{_in_class(last)}")
            elif item == r"\s":
                items.append(" ")
                specials += _SPACES
            elif item in _ESCAPED:
                specials += item
            else:
                items.append(item if len(item) > 1 else _in_class(item))
        if is_negated:
            return _without(specials, "".join(items))
        forms = [_ESCAPED[special] for special in specials] + ([f"[{''.join(items)}]"] if items else [])
        return f"(?:{'|'.join(forms)})"

    def _class_item(self, character: str) -> str:
        """One character, or an escape that stands for several."""
        if character != "\\":
            return character
        letter = self._take()
        if letter in "dws":
            return f"\\{letter}"
        if letter.isalnum() and letter not in _LETTERS:
            raise ValueError(f"\\{letter}")
        return _LETTERS.get(letter, letter)


_SPACES = "\t\n\r\f"


def _literal(character: str) -> str:
    return f"(?:{_ESCAPED[character]})"


def _in_class(character: str) -> str:
    return f"\\{character}" if character in "\\]^-[&~/" else character


def _without(specials: str, items: str = "") -> str:
    """Any character but these. items: in the notation of a class."""
    plain = f"{_PLAIN[:-1]}{items}]"
    escaped = [form for character, form in _ESCAPED.items() if character not in specials]
    return f"(?:{'|'.join([plain, *escaped, _CONTROL])})"
