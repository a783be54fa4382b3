"""Names of a request's prefix for routing, from its text: a gateway has neither tokenizer nor chat template.

What a prompt is made of is cut into blocks of bytes and hashed as a chain. A conversation that has grown begins with
the same names as before. Names of different keys differ, so that users stay apart as they do on the replicas.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TEXT_BLOCK = 64  # bytes: about as many as a block of 16 tokens
BYTES_PER_TOKEN = 4  # in English and code, about
PARTS = ("system", "instructions", "tools", "messages", "input", "prompt", "input_prefix")  # in a prompt's order
MOST_NAMES = 4096


@dataclass(frozen=True)
class PromptText:
    """What a request's prompt begins with, and how long it is."""

    names: tuple[int, ...]
    num_tokens: int  # estimated

    @classmethod
    def of(cls, body: bytes, user: str) -> "PromptText":
        """user: the client's key, which separates users. A body that is not a request of ours has no names."""
        try:
            fields = json.loads(body)
        except ValueError:
            return cls((), 1)
        text = b"".join(_texts(fields)) if isinstance(fields, dict) else b""
        names = tuple(_chain(text[: MOST_NAMES * TEXT_BLOCK], user))
        return cls(names, max(1, len(text) // BYTES_PER_TOKEN))


def _texts(fields: dict[str, Any]) -> Iterator[bytes]:
    """Lists item by item, so that a list that grows only adds to the end."""
    for part in PARTS:
        value = fields.get(part)
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            yield (item if isinstance(item, str) else json.dumps(item)).encode(errors="surrogatepass")


def _chain(text: bytes, user: str) -> Iterator[int]:
    name = hashlib.blake2b(user.encode(errors="surrogatepass"), digest_size=8).digest()
    for start in range(0, len(text) // TEXT_BLOCK * TEXT_BLOCK, TEXT_BLOCK):
        name = hashlib.blake2b(name + text[start : start + TEXT_BLOCK], digest_size=8).digest()
        yield int.from_bytes(name, "little")
