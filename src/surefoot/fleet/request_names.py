"""Names of a request's prefix for routing, from its text: a gateway has neither tokenizer nor chat template.

What a prompt is made of is cut into blocks of bytes and hashed as a chain. A conversation that has grown begins with
the same names as before. Names of different keys differ, so that users stay apart as they do on the replicas.

Streams wait while a body is read, and a body may be hostile. So a long one is not parsed: its bytes are named as they
are, from the first field of a prompt on. That costs a few milliseconds at most. Wrong names cost time, never a token.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from surefoot.fleet.frames import MOST_NAMES

TEXT_BLOCK = 64  # bytes: about as many as a block of 16 tokens
BYTES_PER_TOKEN = 4  # in English and code, about
PARTS = ("system", "instructions", "tools", "messages", "input", "prompt", "input_prefix")  # in a prompt's order
MOST_PARSED = 32 << 10  # bytes of a body that is parsed
_PART = re.compile(rb'"(?:%s)"\s{0,8}:' % "|".join(PARTS).encode())


@dataclass(frozen=True)
class PromptText:
    """What a request's prompt begins with, and how long it is."""

    names: tuple[int, ...]
    num_tokens: int  # estimated

    @classmethod
    def of(cls, body: bytes, user: str) -> "PromptText":
        """user: the client's key, which separates users. A body that is not a request of ours has no names."""
        text = _parsed_text(body) if len(body) <= MOST_PARSED else _raw_text(body)
        names = tuple(_chain(text[: MOST_NAMES * TEXT_BLOCK], user))
        return cls(names, max(1, len(text) // BYTES_PER_TOKEN))


def _parsed_text(body: bytes) -> bytes:
    try:
        fields = json.loads(body)
        return b"".join(_texts(fields)) if isinstance(fields, dict) else b""
    except (ValueError, RecursionError):
        return b""


def _texts(fields: dict[str, Any]) -> Iterator[bytes]:
    """Lists without their end, so that a list that grows only adds to the end."""
    for part in PARTS:
        value = fields.get(part)
        if isinstance(value, str):
            yield value.encode(errors="surrogatepass")
        elif value is not None:
            yield json.dumps(value).removesuffix("]").encode()


def _raw_text(body: bytes) -> bytes:
    found = _PART.search(body, 0, MOST_PARSED)
    return b"" if found is None else body[found.start() :]


def _chain(text: bytes, user: str) -> Iterator[int]:
    name = hashlib.blake2b(user.encode(errors="surrogatepass"), digest_size=8).digest()
    for start in range(0, len(text) // TEXT_BLOCK * TEXT_BLOCK, TEXT_BLOCK):
        name = hashlib.blake2b(name + text[start : start + TEXT_BLOCK], digest_size=8).digest()
        yield int.from_bytes(name, "little")
