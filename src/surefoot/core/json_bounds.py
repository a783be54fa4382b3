"""Bounds on what a JSON text holds and how deep it nests, checked on its bytes before a parser reads it.

A parser's time and memory follow the number of values, not the length: parsed, `[]` takes 30 times its bytes. And a
recursive parser has a stack."""

import re

_STRINGS = re.compile(rb'"[^"]*"')
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
MOST_NUMBERS = 1 << 18  # and other values that are separated by commas
MOST_STRINGS = 1 << 17  # keys among them
MOST_KEYS = 1 << 16
MOST_NODES = 1 << 15  # lists and objects
HEAD_BYTES = 5 * MOST_NUMBERS  # in which most texts that hold too much already do
_BOUNDS = (
    ("lists and objects", b"[{", MOST_NODES),
    ("keys", b":", MOST_KEYS),
    ("values", b",", MOST_NUMBERS),
)


def without_escapes(text: bytes) -> bytes:
    """The text without escaped quotes and backslashes. Most have none, and to look for one byte is quicker."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def without_strings(unescaped: bytes, marks: bytes) -> bytes:
    """These marks of a JSON text that stand outside of its strings. unescaped: the text without escaped quotes."""
    others = bytes(byte for byte in range(256) if byte not in marks and byte != ord('"'))
    # Most strings hold no mark: to remove them as one byte pair is quicker than to match them.
    return _STRINGS.sub(b"", unescaped.translate(None, delete=others).replace(b'""', b""))


def nests_deeper(text: bytes, max_levels: int) -> bool:
    """Whether lists and objects nest more than `max_levels` deep, or more than `max_levels` of them are never closed.

    Strings are cut out first. Then each pass removes the brackets that enclose nothing: one level.
    """
    brackets = without_strings(without_escapes(text), b"[]{}").translate(_AS_LISTS)
    for _ in range(max_levels):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or brackets.count(b"[") > max_levels


def json_excess(text: bytes) -> str | None:
    """What the text has too much of, such as "more than 32768 lists and objects"; None if it is within all bounds.

    The text is UTF-8. That it is JSON is not checked.
    """
    in_head = _excess(_without_open_string(text[:HEAD_BYTES])) if len(text) > HEAD_BYTES else None
    return in_head or _excess(text)


def _without_open_string(text: bytes) -> bytes:
    """The beginning of a JSON text without a string that ends later."""
    unescaped = without_escapes(text)
    return unescaped[: unescaped.rfind(b'"')] if unescaped.count(b'"') % 2 else unescaped


def _excess(text: bytes) -> str | None:
    if text.count(b'"') <= 2 * MOST_STRINGS and _too_much(text) is None:
        return None  # even with what stands inside of strings
    unescaped = without_escapes(text)
    if unescaped.count(b'"') > 2 * MOST_STRINGS:
        return f"more than {MOST_STRINGS} strings"
    return _too_much(without_strings(unescaped, b"[{:,"))


def _too_much(text: bytes) -> str | None:
    for name, marks, most in _BOUNDS:
        if sum(text.count(mark) for mark in marks) > most:
            return f"more than {most} {name}"
    return None
