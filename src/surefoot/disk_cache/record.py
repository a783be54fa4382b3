"""A block's bytes on disk: a header with its own checksum, then the payload, whose checksum the header holds."""

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAGIC = b"SFB1"
DIGEST_BYTES = 32
ID_BYTES = 16  # of models and namespaces
NO_PARENT = bytes(DIGEST_BYTES)
NONCE_BYTES = 12
_CHECKSUM_BYTES = 16

# magic, length of the payload, digest, parent, model, namespace, cost, nonce, checksum of the payload
_FIELDS = struct.Struct("<4sQ32s32s16s16sQ12sI")
HEADER_BYTES = _FIELDS.size + _CHECKSUM_BYTES
PUBLIC_ID = bytes(ID_BYTES)


class DamagedRecord(ValueError):
    """The bytes are not those that were written."""


@dataclass(frozen=True)
class BlockName:
    """What a block is found, counted and forgotten by. Nothing in it tells tokens or users."""

    digest: bytes  # of everything that the block's content depends on
    parent: bytes  # the digest of the block before it; NO_PARENT for a first block
    model: bytes
    namespace: bytes
    cost_us: int  # microseconds to compute it anew


class RecordHeader(NamedTuple):
    name: BlockName
    nonce: bytes  # zeros if the payload is not encrypted
    payload_bytes: int
    payload_checksum: int

    @property
    def record_bytes(self) -> int:
        return HEADER_BYTES + self.payload_bytes

    def pack(self) -> bytes:
        name = self.name
        fields = _FIELDS.pack(
            MAGIC, self.payload_bytes, name.digest, name.parent, name.model, name.namespace, name.cost_us, self.nonce,
            self.payload_checksum,
        )  # fmt: skip
        return fields + _checksum(fields)

    def check(self, payload: bytes | memoryview) -> None:
        """CRC-32 finds every flip of one or two bits and every burst of 32; other damage passes once in 4 billion."""
        if len(payload) != self.payload_bytes or zlib.crc32(payload) != self.payload_checksum:
            raise DamagedRecord("the block's bytes have changed")


def make_header(name: BlockName, payload: bytes | memoryview, nonce: bytes = bytes(NONCE_BYTES)) -> RecordHeader:
    return RecordHeader(name, nonce, len(payload), zlib.crc32(payload))


def read_header(data: bytes | memoryview) -> RecordHeader:
    """Raises DamagedRecord if a bit is wrong or missing."""
    fields, checksum = bytes(data[: _FIELDS.size]), bytes(data[_FIELDS.size : HEADER_BYTES])
    if len(fields) < _FIELDS.size or checksum != _checksum(fields):
        raise DamagedRecord("the header's bytes have changed")
    magic, length, digest, parent, model, namespace, cost_us, nonce, crc = _FIELDS.unpack(fields)
    if magic != MAGIC:
        raise DamagedRecord("another version's record")
    return RecordHeader(BlockName(digest, parent, model, namespace, cost_us), nonce, length, crc)


def _checksum(fields: bytes) -> bytes:
    return hashlib.blake2b(fields, digest_size=_CHECKSUM_BYTES).digest()


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
