"""JSON objects, one a line, that carry a checksum of their own bytes: damage shows when a line is read."""

import hashlib
import json
from typing import Any

_MARK = b', "checksum": "'


def seal(values: dict[str, Any]) -> bytes:
    """The line, with its end. values: at least one."""
    text = json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass")[:-1]
    return text + _end(text)


def unseal(line: bytes) -> dict[str, Any] | None:
    """The values without the checksum; None if a byte is wrong or missing."""
    text, mark, _ = line.rpartition(_MARK)
    if not mark or line != text + _end(text):
        return None
    values: dict[str, Any] = json.loads(text + b"}")
    return values


def _end(text: bytes) -> bytes:
    return _MARK + hashlib.sha256(text).hexdigest()[:16].encode() + b'"}\n'
