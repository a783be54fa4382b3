"""Encryption at rest with a key file: AES-GCM of the `cryptography` package, which only this needs."""

import hashlib
import os
import stat
from importlib import import_module
from pathlib import Path
from typing import Any

from surefoot.disk_cache.record import NONCE_BYTES, BlockName, DamagedRecord

KEY_BYTES = 32


class CacheKeyError(ValueError):
    """The key file cannot be used."""


class BlockCipher:
    """Encrypts payloads. A block's name is authenticated with it, so blocks cannot be exchanged."""

    def __init__(self, secret: bytes) -> None:
        try:
            ciphers: Any = import_module("cryptography.hazmat.primitives.ciphers.aead")
            self._errors: Any = import_module("cryptography.exceptions")
        except ImportError:
            raise CacheKeyError(
                "a key file needs the package `cryptography`: pip install 'surefoot[encryption]'"
            ) from None
        self._cipher: Any = ciphers.AESGCM(_derived(secret, b"payload"))
        self.hash_key = _derived(secret, b"names")

    def encrypt(self, name: BlockName, payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """The nonce and the encrypted payload."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce, self._cipher.encrypt(nonce, payload, _bound(name))

    def decrypt(self, name: BlockName, nonce: bytes, payload: bytes | memoryview) -> bytes:
        try:
            plain: bytes = self._cipher.decrypt(nonce, payload, _bound(name))
        except self._errors.InvalidTag:
            raise DamagedRecord("another key's block") from None
        return plain


def read_key(path: Path) -> BlockCipher:
    """Raises CacheKeyError unless the file holds 32 bytes that only its owner may read."""
    with path.open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise CacheKeyError(f"others may read {path}: chmod 600 it")
        secret = file.read(KEY_BYTES + 1)
    if len(secret) != KEY_BYTES:
        raise CacheKeyError(f"{path} must hold {KEY_BYTES} random bytes: head -c {KEY_BYTES} /dev/urandom > {path}")
    return BlockCipher(secret)


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=secret, person=purpose, digest_size=KEY_BYTES).digest()


def _bound(name: BlockName) -> bytes:
    return name.digest + name.parent + name.model + name.namespace
