"""Who may use the server and how much: a file of hashed keys, read again whenever it changes.

The file is TOML, a table for each key:

    [[key]]
    hash = "sha256:..."            # of the key; the key itself is nowhere
    user = "alice"                 # fairness, cache and limits are by user
    weight = 1.0                   # her share when the machine is busy
    priority = 0                   # larger is served first
    requests_per_minute = 60       # left out: no limit
    tokens_per_minute = 100000     # prompt and answer
    max_context = 4096
"""

import hashlib
import logging
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surefoot.core.request import LARGEST_PRIORITY
from surefoot.server.rates import TokenBucket

PREFIX = "sf-"
LOG = logging.getLogger(__name__)


class KeyFileError(ValueError):
    """The file cannot be used; the message says why."""


class KeyEntry(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    priority: Annotated[int, Field(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)] = 0
    requests_per_minute: Annotated[float | None, Field(gt=0)] = None
    tokens_per_minute: Annotated[float | None, Field(gt=0)] = None
    max_context: Annotated[int | None, Field(ge=1)] = None

    @property
    def name(self) -> str:
        """What logs call it."""
        return self.hash.removeprefix("sha256:")[:8]


class KeyFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: list[KeyEntry] = []


@dataclass(frozen=True)
class Caller:
    """Who sends a request, with what is left of their rates. Without keys everyone is the same user."""

    user: str = ""
    key: str = ""
    weight: float = 1.0
    priority: int = 0
    max_context: int | None = None
    requests: TokenBucket | None = field(default=None, compare=False)
    tokens: TokenBucket | None = field(default=None, compare=False)


ANYONE = Caller()


def make_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """Plain SHA-256 is enough: keys are random, so that there is nothing to guess."""
    return "sha256:" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[KeyEntry]:
    try:
        entries = KeyFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).key
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise KeyFileError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise KeyFileError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if len({entry.hash for entry in entries}) < len(entries):
        raise KeyFileError(f"{path}: a key stands there twice")
    return entries


def add_key(path: Path, entry: KeyEntry) -> None:
    """Append a table; the file stays readable to its owner alone."""
    lines = ["[[key]]"]
    for name, value in entry.model_dump(exclude_none=True, exclude_defaults=True).items():
        lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    if not path.exists():
        path.touch(mode=0o600)
    before = path.read_text(encoding="utf-8")
    path.write_text(before + ("\n" if before else "") + "\n".join(lines) + "\n", encoding="utf-8")


class KeyStore:
    """The callers by their keys' hashes. A file that has become unusable leaves things as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._read_stamp()
        self._callers = self._make(read_keys(path), {})

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def weights(self) -> dict[str, float]:
        return {caller.user: caller.weight for caller in self._callers.values()}

    def find(self, key: str) -> Caller | None:
        return self._callers.get(hash_of(key))

    def find_user(self, user: str) -> Caller | None:
        """By the first of the user's keys."""
        return next((caller for caller in self._callers.values() if caller.user == user), None)

    def reload_if_changed(self) -> bool:
        stamp = self._read_stamp()
        return stamp != self._stamp and self.reload()

    def reload(self) -> bool:
        """Whether it could be read."""
        self._stamp = self._read_stamp()
        try:
            entries = read_keys(self._path)
        except KeyFileError as error:
            LOG.error("the keys stay as they were: %s", error)
            return False
        self._callers = self._make(entries, self._callers)
        LOG.info("%d keys read from %s", len(self._callers), self._path)
        return True

    def _read_stamp(self) -> tuple[int, int, int]:
        try:
            facts = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    @staticmethod
    def _make(entries: list[KeyEntry], before: Mapping[str, Caller]) -> dict[str, Caller]:
        """Rates that did not change keep what is left of them: editing the file refills nobody's."""
        return {entry.hash: _caller(entry, before.get(entry.hash)) for entry in entries}


def _caller(entry: KeyEntry, before: Caller | None) -> Caller:
    return Caller(
        entry.user,
        entry.name,
        entry.weight,
        entry.priority,
        entry.max_context,
        _bucket(entry.requests_per_minute, before.requests if before else None),
        _bucket(entry.tokens_per_minute, before.tokens if before else None),
    )


def _bucket(per_minute: float | None, before: TokenBucket | None) -> TokenBucket | None:
    if per_minute is None:
        return None
    return before if before is not None and before.per_minute == per_minute else TokenBucket(per_minute)
