"""Files of requests in OpenAI's batch format, a request a line.

A line's `id` comes from its bytes; without a seed in the body, so does the seed: a batch gives the same bits whenever
it is run. Who answers the lines is another's business.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_LEVELS = 100  # of brackets within brackets; Python's parser gives up at about ten times as many
MOST_TOKENS = 1_000_000  # that a line with so many brackets may have
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]:]')


@dataclass(frozen=True)
class Line:
    """One line of the input. number: from 1. digest: of its bytes. problem: why it cannot be a request."""

    number: int
    custom_id: str
    digest: str
    content: Any
    problem: str | None = None

    @property
    def id(self) -> str:
        return f"batch_req_{self.digest[:32]}"

    @property
    def seed(self) -> int:
        return int(self.digest[-16:], 16) >> 1


def named_model(source: Path) -> str:
    """The model that the lines' bodies name."""
    bodies = (line.content.get("body") for line in read_lines(source))
    names = sorted({str(body.get("model")) for body in bodies if isinstance(body, dict)})
    if len(names) != 1 or names == ["None"]:
        raise ValueError(f"the lines name {', '.join(names) or 'no model'}: say with --model which one to run")
    return names[0]


def read_lines(source: Path) -> Iterator[Line]:
    """Raises ValueError for a line that is no request at all, and for a custom_id that comes twice."""
    seen: set[str] = set()
    with source.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            text = raw.strip()
            if not text:
                continue
            try:
                content, problem = _parse(text)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON that can be read: {error}") from None
            custom_id = content.get("custom_id") if isinstance(content, dict) else None
            if not isinstance(custom_id, str) or not custom_id:
                raise ValueError(f"line {number} has no custom_id: give each line its own")
            if custom_id in seen:
                raise ValueError(f"line {number} has the custom_id {custom_id!r} of a line before: give each its own")
            seen.add(custom_id)
            yield Line(number, custom_id, hashlib.sha256(text).hexdigest(), content, problem)


def _parse(text: bytes) -> tuple[Any, str | None]:
    """The content, and what is wrong with it. Of a line that nests too deeply, the content is its outermost strings."""
    if text.count(b"[") + text.count(b"{") > MOST_LEVELS:
        num_levels, strings = _outline(text)
        if num_levels > MOST_LEVELS:
            return strings, f"the line nests {num_levels} levels deep: {MOST_LEVELS} are allowed"
    return json.loads(text), None


def _outline(text: bytes) -> tuple[int, dict[str, str]]:
    """How deep the brackets go, and the strings that the outermost object has. Without recursion."""
    level = num_levels = 0
    strings: dict[str, str] = {}
    last, key = b"", b""
    for number, found in enumerate(_TOKEN.finditer(text)):
        if number == MOST_TOKENS:
            raise ValueError("it has too many brackets and strings")
        token = found[0]
        if token in b"{[":
            level += 1
            num_levels = max(num_levels, level)
        elif token in b"}]":
            level -= 1
        elif token == b":":
            key = last
        elif level == 1 and last == b":" and token[:1] == key[:1] == b'"':
            strings[json.loads(key)] = json.loads(token)
        last = token
    return num_levels, strings
