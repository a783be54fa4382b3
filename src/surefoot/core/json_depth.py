"""A check of how deep JSON nests, without recursion, for use before a recursive parser."""

import re

_STRINGS = re.compile(rb'"[^"]*"')
_AS_LISTS = bytes.maketrans(b"{}", b"[]")


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
