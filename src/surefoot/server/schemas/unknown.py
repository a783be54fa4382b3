"""Parameters that this server does not know: dropped and noted, or refused.

`noting_unknown` decides for each HTTP request or line of a batch whether they are dropped or refused. The decision
reaches the schemas through a context variable, since FastAPI hands no context of its own to pydantic.
"""

import itertools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

MOST_NAMES = 8  # names that the header lists; all are counted
MOST_CHARACTERS = 64  # of each name


@dataclass
class UnknownParameters:
    """The unknown parameters of one request."""

    is_strict: bool  # they are left for pydantic to refuse
    names: list[str] = field(default_factory=list)  # the first MOST_NAMES of them
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


_current: ContextVar[UnknownParameters | None] = ContextVar("unknown_parameters", default=None)


@contextmanager
def noting_unknown(is_strict: bool) -> Iterator[UnknownParameters]:
    """Bodies validated inside of this context drop unknown parameters and note them here. Outside they refuse them."""
    unknown = UnknownParameters(is_strict)
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


def note_kind(part: str, kind: str) -> None:
    """A part of a conversation, such as a block, of a kind that is not known. Raises ValueError where it is refused."""
    if is_strict():
        raise ValueError(f"unknown {part} type {kind!r}: leave it out")
    note(f"{part}s of type {kind}")


def without_unknown(data: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The parameters that pydantic is to check. An unknown parameter that is null is dropped without a note. Where
    unknown ones are refused, the first is kept for pydantic to refuse."""
    kept = {name: value for name, value in data.items() if name in known}
    unknown = (name for name, value in data.items() if name not in known and value is not None)
    if is_strict():
        return kept | {name: data[name] for name in itertools.islice(unknown, 1)}
    for name in unknown:
        note(str(name))
    return kept
