"""Input files in OpenAI's batch format, one request per line.

A line's `id` is a digest of its bytes, and so is its seed if the body has none: a batch gives the same bits whenever it
is run.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.core.json_bounds import json_excess, nests_deeper

MAX_LINE_BYTES = 4 << 20  # as the body of one request
MAX_LEVELS = 100  # of nested brackets; Python's parser fails at about ten times as many
MAX_TOKENS = 1_000_000  # brackets and strings of a line that nests deeper
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]:]')


@dataclass(frozen=True)
class BatchLine:
    """One line of the input."""

    number: int  # from 1
    custom_id: str
    digest: str  # SHA-256 of its bytes, in hexadecimal
    content: Any
    created: int  # Unix time at which its file was last changed: a resumed batch makes the same prompts
    problem: str | None = None  # why it cannot be a request
    num_bytes: int = 0

    @property
    def id(self) -> str:
        return f"batch_req_{self.digest[:32]}"

    @property
    def seed(self) -> int:
        return int(self.digest[-16:], 16) >> 1


def named_model(source: Path) -> str:
    """The model that all bodies name. Raises ValueError if there is not exactly one."""
    bodies = (line.content.get("body") for line in read_lines(source))
    names = sorted({str(body.get("model")) for body in bodies if isinstance(body, dict)})
    if len(names) != 1 or names == ["None"]:
        raise ValueError(f"the lines name {', '.join(names) or 'no model'}: say with --model which one to run")
    return names[0]


def read_lines(source: Path) -> Iterator[BatchLine]:
    """The lines. Raises ValueError for a line that is too long or without JSON or custom_id, and for a custom_id that
    comes twice."""
    seen: set[str] = set()
    with source.open("rb") as lines:
        created = int(os.fstat(lines.fileno()).st_mtime)
        for number, raw in enumerate(lines, 1):
            text = raw.strip()
            if not text:
                continue
            if len(text) > MAX_LINE_BYTES:
                raise ValueError(f"line {number} has {len(text)} bytes, and {MAX_LINE_BYTES} are allowed: split it")
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
            digest = hashlib.sha256(text).hexdigest()
            yield BatchLine(number, custom_id, digest, content, created, problem, len(text))


def _parse(text: bytes) -> tuple[Any, str | None]:
    """The line's content, and what is wrong with it. A line that is not parsed gives its outermost strings."""
    if text.count(b"[") + text.count(b"{") > MAX_LEVELS and nests_deeper(text, MAX_LEVELS):
        return _outermost_strings(text), f"the line nests more than {MAX_LEVELS} levels deep: make it flatter"
    excess = json_excess(text)
    if excess is not None:
        return _outermost_strings(text), f"the line has {excess}: split it"
    return json.loads(text), None


def _outermost_strings(text: bytes) -> dict[str, str]:
    """The string values of the outermost object by key, found without recursion."""
    level = 0
    strings: dict[str, str] = {}
    last, key = b"", b""
    for number, match in enumerate(_TOKEN.finditer(text)):
        if number == MAX_TOKENS:
            raise ValueError("it has too many brackets and strings")
        token = match[0]
        if token in b"{[":
            level += 1
        elif token in b"}]":
            level -= 1
        elif token == b":":
            key = last
        elif level == 1 and last == b":" and token[:1] == key[:1] == b'"':
            strings[json.loads(key)] = json.loads(token)
        last = token
    return strings
