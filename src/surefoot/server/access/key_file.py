"""The file of keys: its format, and atomic changes to it.

It is TOML, a table for each key:

    [[key]]
    hash = "sha256:..."            # of the key; the key itself is not stored
    user = "alice"                 # fairness, cache and limits are per user
    weight = 1.0                   # the user's share when the machine is busy
    priority = 0                   # larger is served first
    requests_per_minute = 60       # left out: no limit
    tokens_per_minute = 100000     # prompt and answer
    max_context = 4096
    admin = false                  # may read /metrics, which covers all users, add keys and revoke them
    disk_cache = true              # false: the user's prompts and answers are cached in memory alone
    upstreams = ["elsewhere"]      # that may answer requests of this key; left out: none
    upstream_budget = 5.0          # that they may cost in a day, in the currency of their prices; left out: nothing
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surefoot.core.request import LARGEST_PRIORITY
from surefoot.machine.atomic_write import atomic_write
from surefoot.server.errors import first_fault

PREFIX = "sf-"
MOST_BYTES = 16 << 20
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
NAME_LENGTH = 8
MOST_UPSTREAMS = 64
LARGEST_BUDGET = 1e9
UpstreamName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^\S+$")]
# From the comment right above a table to its last value, and the empty line that follows.
TABLE = re.compile(
    r"""(?:^[ \t]*\#.*\n)*
    ^[ \t]*\[\[\s*key\s*\]\].*\n?
    (?:(?:^[ \t]*(?:\#.*)?\r?\n)*^[ \t]*[^\#\s\[].*\n?)*
    (?:^[ \t]*\r?\n)?""",
    re.MULTILINE | re.VERBOSE,
)


class KeyFileError(ValueError):
    """The file cannot be used; the message says why."""


class KeyOwner(BaseModel):
    """Whose a key is, and its limits."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    priority: Annotated[int, Field(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)] = 0
    requests_per_minute: Annotated[float | None, Field(gt=0, le=1e12)] = None
    tokens_per_minute: Annotated[float | None, Field(gt=0, le=1e12)] = None
    max_context: Annotated[int | None, Field(ge=1)] = None
    admin: bool = False
    disk_cache: bool = True
    upstreams: Annotated[tuple[UpstreamName, ...], Field(max_length=MOST_UPSTREAMS, fail_fast=True)] = ()
    upstream_budget: Annotated[float, Field(ge=0, le=LARGEST_BUDGET)] = 0.0


class KeyEntry(KeyOwner):
    """One table of the file."""

    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

    @property
    def name(self) -> str:
        """The name of the key in logs and in `surefoot keys list`."""
        return self.digest[:NAME_LENGTH]

    @property
    def shown(self) -> dict[str, Any]:
        """For lists: the name in place of the hash."""
        return {"name": self.name, **self.model_dump(exclude={"hash"})}

    @property
    def digest(self) -> str:
        return self.hash.removeprefix("sha256:")


class KeyFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: list[KeyEntry] = []


def make_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """The key's SHA-256. No slow hash is needed: keys are random, so they cannot be guessed."""
    return "sha256:" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[KeyEntry]:
    return _parse(path, _read(path))


def add_key(path: Path, entry: KeyEntry) -> None:
    """Append a table. The rest of the file stays as it is, comments too. A new file is readable by its owner alone."""
    _change(path, lambda text: text + ("\n" if text else "") + _table(entry))


def revoke_keys(path: Path, name: str | None = None, user: str | None = None) -> list[KeyEntry]:
    """Remove the key with that name, or all keys of that user. Returns the removed entries.

    A key goes with the comment right above its table; the rest of the file stays as it is.
    """
    revoked: list[KeyEntry] = []

    def remove(text: str) -> str:
        entries = _parse(path, text)
        revoked.extend(_chosen(path, entries, name, user))
        if len(revoked) == len(entries):
            raise KeyFileError(
                f"{path}: no key would be left, and a running server does not take a file without keys: add another "
                "key first, or stop the server and remove the file"
            )
        return _without(path, text, [entry in revoked for entry in entries])

    _change(path, remove)
    return revoked


# ---- reading ----


def _read(path: Path) -> str:
    """The file's text. Raises KeyFileError for a file that other users may write to: they could add keys of their
    own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # never wait for a pipe's writer
        with open(descriptor, "rb") as file:
            _check(path, os.fstat(descriptor))
            return file.read(MOST_BYTES).decode()
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{path}: not valid TOML: {error}") from error


def _check(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
        raise KeyFileError(f"{path}: must be a regular file of at most {MOST_BYTES >> 20} MiB")
    if facts.st_mode & WRITABLE_BY_OTHERS:
        raise KeyFileError(f"{path}: other users can write to it and could add keys: chmod 600 {path}")


def _parse(path: Path, text: str) -> list[KeyEntry]:
    try:
        entries = KeyFile.model_validate(tomllib.loads(text)).key
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise KeyFileError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise KeyFileError(f"{path}: {first_fault(error.errors())}") from error
    if len({entry.hash for entry in entries}) < len(entries):
        raise KeyFileError(f"{path}: a key appears twice")
    return entries


# ---- writing ----


def _change(path: Path, change: Callable[[str], str]) -> None:
    """Apply a change under a lock shared by all processes. The file is replaced atomically; owner and mode stay."""
    path = path.resolve()  # a link stays a link
    with _locked(path) as facts:
        before = _read(path)
        _parse(path, before)
        text = change(before)
        _parse(path, text)
        with atomic_write(path) as beside:
            beside.unlink(missing_ok=True)  # of a writer that was killed
            _write_as(beside, facts, text.encode())


@contextmanager
def _locked(path: Path) -> Iterator[os.stat_result]:
    """Hold the file's lock. A process that waited for a file that was replaced meanwhile waits again, for the new
    one."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            facts = os.fstat(descriptor)
            if path.exists() and os.path.samestat(facts, path.stat()):
                yield facts
                return
        finally:
            os.close(descriptor)


def _write_as(path: Path, facts: os.stat_result, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, facts.st_uid, facts.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))
        file.write(data)


def _table(entry: KeyEntry) -> str:
    values = entry.model_dump(exclude_none=True, exclude_defaults=True)
    return "\n".join(["[[key]]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]) + "\n"


def _chosen(path: Path, entries: Sequence[KeyEntry], name: str | None, user: str | None) -> list[KeyEntry]:
    if user is not None:
        chosen = [entry for entry in entries if entry.user == user]
    else:
        chosen = [entry for entry in entries if name and len(name) >= NAME_LENGTH and entry.digest.startswith(name)]
        if len(chosen) > 1:
            raise KeyFileError(f"{path}: {len(chosen)} keys begin with {name}: give more of the hash")
    if not chosen:
        raise KeyFileError(f"{path}: there is no such key: see surefoot keys list {path}")
    return chosen


def _without(path: Path, text: str, is_revoked: Sequence[bool]) -> str:
    """The text without the revoked tables."""
    revoked = iter(is_revoked)
    changed = TABLE.sub(lambda table: "" if next(revoked, False) else table[0], text)
    wanted = [entry for entry, gone in zip(_parse(path, text), is_revoked, strict=True) if not gone]
    if _parse(path, changed) != wanted:
        raise KeyFileError(
            f"{path}: its tables are not written as surefoot keys add writes them: remove the key by hand"
        )
    return changed
