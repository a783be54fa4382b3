"""Lines of JSON with a checksum of their own bytes, so that damage is detected when a line is read."""

import hashlib
import json
from typing import Any

_MARK = b', "checksum": "'


def with_checksum(values: dict[str, Any]) -> bytes:
    """The values as a line with a checksum. There must be at least one value."""
    text = json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass")[:-1]
    return text + _end(text)


def verified(line: bytes) -> dict[str, Any] | None:
    """The values without the checksum; None if a byte is wrong or missing."""
    text, mark, _ = line.rpartition(_MARK)
    if not mark or line != text + _end(text):
        return None
    values: dict[str, Any] = json.loads(text + b"}")
    return values


def _end(text: bytes) -> bytes:
    return _MARK + hashlib.sha256(text).hexdigest()[:16].encode() + b'"}\n'
