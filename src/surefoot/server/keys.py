"""Who may use the server and how much: the callers of a file of hashed keys, read again whenever it changes."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.server.key_file import KeyEntry, KeyFileError, hash_of, read_keys
from surefoot.server.rates import TokenBucket

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who sends a request, with what is left of their rates. Without keys everyone is the same user."""

    user: str = ""
    key: str = ""
    weight: float = 1.0
    priority: int = 0
    max_context: int | None = None
    is_admin: bool = False  # may know of other users
    requests: TokenBucket | None = field(default=None, compare=False)
    tokens: TokenBucket | None = field(default=None, compare=False)


ANYONE = Caller()


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
            if not entries and self._callers:
                raise KeyFileError(f"{self._path}: it had keys and has none now: add one, or stop the server")
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
        entry.admin,
        _bucket(entry.requests_per_minute, before.requests if before else None),
        _bucket(entry.tokens_per_minute, before.tokens if before else None),
    )


def _bucket(per_minute: float | None, before: TokenBucket | None) -> TokenBucket | None:
    if per_minute is None:
        return None
    return before if before is not None and before.per_minute == per_minute else TokenBucket(per_minute)
