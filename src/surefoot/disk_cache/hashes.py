"""Names of blocks: a chain of hashes, so that equal names mean equal tokens before them, of one model and user."""

import hashlib
import struct
from collections.abc import Sequence

from surefoot.disk_cache.record import DIGEST_BYTES, ID_BYTES

PUBLIC_ID = bytes(ID_BYTES)


class BlockHasher:
    """Hashes of one model's blocks. With a key, nobody else can check a guessed text against the names on the disk."""

    def __init__(self, model: bytes, key: bytes = b"") -> None:
        """model: stands for all that a block's bytes depend on besides tokens: weights, arithmetic, form."""
        self._key = key
        self.model = self._hash(b"model", model, ID_BYTES)
        self.root = self._hash(b"root", model, DIGEST_BYTES)  # stands for the parent of first blocks

    def child(self, parent: bytes, namespace: bytes, tokens: Sequence[int]) -> bytes:
        """The name of the block with these tokens after the parent's."""
        return self._hash(b"block", parent + namespace + struct.pack(f"<{len(tokens)}q", *tokens), DIGEST_BYTES)

    def state(self, block: bytes, part: int) -> bytes:
        """The name of a part of the state after a block."""
        return self._hash(b"state", block + struct.pack("<q", part), DIGEST_BYTES)

    def namespace(self, name: str | None) -> bytes:
        """None: public."""
        return PUBLIC_ID if name is None else self._hash(b"user", name.encode(errors="surrogatepass"), ID_BYTES)

    def _hash(self, purpose: bytes, data: bytes, size: int) -> bytes:
        return hashlib.blake2b(data, digest_size=size, key=self._key, person=purpose).digest()
