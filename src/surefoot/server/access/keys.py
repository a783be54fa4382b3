"""The callers that a file of hashed keys allows, with their limits. The file is read again whenever it changes."""

import logging
from collections.abc import Mapping
from pathlib import Path

from surefoot.server.access.key_file import KeyEntry, KeyFileError, hash_of, read_keys
from surefoot.server.access.rates import ChargedRate, RateLimits, TokenBucket
from surefoot.server.access.shares import Caller
from surefoot.server.access.watched_files import WatchedFiles

LOG = logging.getLogger(__name__)
RELOAD_S = 1.0  # between two looks at the file


class KeyStore:
    """The callers by their keys' hashes. If the file becomes unusable, the callers stay as they were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = WatchedFiles(path)
        entries = read_keys(path)
        self._callers = self._make(entries, {})
        self.limits = RateLimits.of(entries)

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def weights(self) -> dict[str, float]:
        return {caller.user: caller.weight for caller in self._callers.values()}

    def find(self, key: str) -> Caller | None:
        return self._callers.get(hash_of(key))

    def find_user(self, user: str) -> Caller | None:
        """The caller with the user's first key."""
        return next((caller for caller in self._callers.values() if caller.user == user), None)

    def find_name(self, key: str) -> Caller | None:
        """The caller with the key of this name."""
        return next((caller for caller in self._callers.values() if caller.key == key), None)

    def reload_if_changed(self) -> bool:
        return self._files.have_changed and self.reload()

    async def watch(self) -> None:
        """Notice changes of the file, for ever."""
        await self._files.watch(RELOAD_S, self.reload)

    def reload(self) -> bool:
        """Read the file again. Returns whether it could be read."""
        self._files.note()
        try:
            entries = read_keys(self.path)
            if not entries and self._callers:
                raise KeyFileError(f"{self.path}: it had keys and has none now: add one, or stop the server")
        except KeyFileError as error:
            LOG.error("the keys stay as they were: %s", error)
            return False
        self._callers = self._make(entries, self._callers)
        self.limits = RateLimits.of(entries)
        LOG.info("%d keys read from %s", len(self._callers), self.path)
        return True

    @staticmethod
    def _make(entries: list[KeyEntry], before: Mapping[str, Caller]) -> dict[str, Caller]:
        """Callers of the entries. A rate that did not change keeps its level: editing the file refills no rate. A user
        with one key that stays off the disk stays off it with every key: batches run without a key."""
        off_disk = {entry.user for entry in entries if not entry.disk_cache}
        return {entry.hash: _caller(entry, entry.user not in off_disk, before.get(entry.hash)) for entry in entries}


def _caller(entry: KeyEntry, uses_disk: bool, before: Caller | None) -> Caller:
    return Caller(
        entry.user,
        entry.name,
        entry.weight,
        entry.priority,
        entry.max_context,
        entry.admin,
        uses_disk,
        entry.upstreams,
        entry.upstream_budget,
        _bucket(entry.requests_per_minute, before.requests if before else None),
        _bucket(entry.tokens_per_minute, before.tokens if before else None),
    )


def _bucket(per_minute: float | None, before: ChargedRate | None) -> ChargedRate | None:
    if per_minute is None:
        return None
    is_same = isinstance(before, TokenBucket) and before.per_minute == per_minute
    return before if is_same else TokenBucket(per_minute)
