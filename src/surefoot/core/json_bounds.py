"""Bounds on what a JSON text holds, checked on its bytes. A parser's time and memory follow the number of values, not
the length: parsed, `[]` takes 30 times its bytes."""

from surefoot.core.json_depth import without_escapes, without_strings

MOST_NUMBERS = 1 << 18  # and other values that are separated by commas
MOST_STRINGS = 1 << 17  # keys among them
MOST_KEYS = 1 << 16
MOST_NODES = 1 << 15  # lists and objects

_BOUNDS = (
    ("lists and objects", b"[{", MOST_NODES),
    ("keys", b":", MOST_KEYS),
    ("values", b",", MOST_NUMBERS),
)


def json_excess(text: bytes) -> str | None:
    """What the text has too much of, such as "more than 32768 lists and objects"; None if it is within all bounds.

    The text is UTF-8. That it is JSON is not checked.
    """
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
