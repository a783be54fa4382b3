"""Keys of users: by the command, or quickly."""

from pathlib import Path
from typing import Any

from surefoot.server import KeyEntry, hash_of, make_key
from surefoot.server import add_key as write_key
from tests.cli.process import run


def quick_key(file: Path, user: str, **limits: Any) -> str:
    key = make_key()
    write_key(file, KeyEntry(hash=hash_of(key), user=user, **limits))
    return key


def add_key(file: Path, user: str, *words: str) -> str:
    """By the command."""
    made = run("keys", "add", str(file), "--user", user, *words)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
