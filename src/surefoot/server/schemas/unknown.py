"""Parameters that a client sends and this server does not know: noted and dropped, or refused.

What may be done with them is decided for each HTTP request or line of a batch, by `noting`. It reaches the schemas
through a context variable, since FastAPI hands no context of its own to pydantic.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

MOST_NAMES = 8  # that are told of; all are counted
MOST_CHARACTERS = 64  # of each


@dataclass
class Unknown:
    """The unknown parameters of one request. is_strict: they are left for pydantic to refuse."""

    is_strict: bool
    names: list[str] = field(default_factory=list)
    count: int = 0

    def note(self, name: str) -> None:
        self.count += 1
        if len(self.names) < MOST_NAMES:
            self.names.append(name[:MOST_CHARACTERS])

    @property
    def warning(self) -> str:
        """The value of a Warning header: printable ASCII without quotes, of bounded length."""
        names = ", ".join(
            "".join(c if c.isprintable() and c not in '"\\' else "?" for c in name) for name in self.names
        )
        rest = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f'199 - "unknown parameter ignored: {names.encode("ascii", "replace").decode()}{rest}"'


_current: ContextVar[Unknown | None] = ContextVar("unknown_parameters", default=None)


@contextmanager
def noting(is_strict: bool) -> Iterator[Unknown]:
    """Bodies that are checked inside drop what they do not know and note it here. Outside they refuse it."""
    unknown = Unknown(is_strict)
    token = _current.set(unknown)
    try:
        yield unknown
    finally:
        _current.reset(token)


def is_strict() -> bool:
    unknown = _current.get()
    return unknown is None or unknown.is_strict


def note(name: str) -> None:
    unknown = _current.get()
    if unknown is not None:
        unknown.note(name)


def without_unknown(data: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """What is left for pydantic to check. An unknown null says nothing, so that it is never refused."""
    kept = {}
    for name, value in data.items():
        if name in known or (value is not None and is_strict()):
            kept[name] = value
        elif value is not None:
            note(str(name))
    return kept
