"""Blocks of bytes on disk, by a hash of all that they depend on. Knows no tokens' meaning and no model."""

from surefoot.disk_cache.beside import Contents, ask_to_forget, asked_namespaces, is_forgotten, read_contents
from surefoot.disk_cache.cipher import BlockCipher, CacheKeyError, read_key
from surefoot.disk_cache.index import Holdings
from surefoot.disk_cache.record import (
    DIGEST_BYTES,
    HEADER_BYTES,
    ID_BYTES,
    NO_PARENT,
    PUBLIC_ID,
    BlockHasher,
    BlockName,
    DamagedRecord,
    read_header,
)
from surefoot.disk_cache.segments import LOCK
from surefoot.disk_cache.store import BlockStore, CacheInUse

__all__ = [
    "DIGEST_BYTES",
    "HEADER_BYTES",
    "ID_BYTES",
    "LOCK",
    "NO_PARENT",
    "PUBLIC_ID",
    "BlockCipher",
    "BlockHasher",
    "BlockName",
    "BlockStore",
    "CacheInUse",
    "CacheKeyError",
    "Contents",
    "DamagedRecord",
    "Holdings",
    "ask_to_forget",
    "asked_namespaces",
    "is_forgotten",
    "read_contents",
    "read_header",
    "read_key",
]
