"""What an upstream says of the tokens of its reply."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

MOST_COUNT = 1 << 31
USAGE_BYTES = 16 << 10  # at the end of a stream, where its usage is
MOST_READ_BYTES = 4 << 20  # of a whole answer whose usage is read, and of a line of a stream
PREFIX = b"data:"


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of one request, as the upstream counts them."""

    prompt: int
    answer: int


@dataclass
class ReadReply:
    """Passes a reply on, and keeps what tells its usage. hides_usage: leave out the event of a stream that has only
    that, since the client did not ask for it."""

    is_stream: bool
    hides_usage: bool = False
    kept: bytes = b""

    async def passed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Raises ValueError if a line is too long."""
        rest = b""
        async for chunk in chunks:
            self.kept = (self.kept + chunk)[-USAGE_BYTES:] if self.is_stream else chunk
            if not (self.is_stream and self.hides_usage):
                yield chunk
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MOST_READ_BYTES:
                raise ValueError(f"a line of more than {MOST_READ_BYTES} bytes")
            yield b"".join(line + b"\n" for line in lines if not _is_usage_alone(line))
        yield b"" if _is_usage_alone(rest) else rest

    @property
    def usage(self) -> TokenUsage | None:
        """None: it does not say, or not credibly."""
        if self.is_stream:
            found = [_usage_of(_event(line)) for line in self.kept.splitlines()]
            return next((usage for usage in reversed(found) if usage is not None), None)
        return _usage_of(_object(self.kept)) if len(self.kept) <= MOST_READ_BYTES else None


def _event(line: bytes) -> dict[str, Any]:
    return _object(line.removeprefix(PREFIX)) if line.startswith(PREFIX) else {}


def _object(data: bytes) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _usage_of(given: dict[str, Any]) -> TokenUsage | None:
    told = given.get("usage")
    if not isinstance(told, dict):
        return None
    prompt, answer = told.get("prompt_tokens"), told.get("completion_tokens")
    return TokenUsage(prompt, answer) if _is_count(prompt) and _is_count(answer) else None  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_COUNT


def _is_usage_alone(line: bytes) -> bool:
    if b'"usage"' not in line:
        return False
    event = _event(line)
    return isinstance(event.get("usage"), dict) and event.get("choices") == []
