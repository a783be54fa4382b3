"""Sends blocks of the prompt cache to other servers of the fleet, from the disk: no step waits for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Send

from surefoot.cache import BlockQuestion, DiskTier
from surefoot.disk_cache import PUBLIC_ID
from surefoot.fleet.frames import encode_count
from surefoot.server.errors import ApiError

MOST_AT_ONCE = 4  # answers to other servers
MOST_BYTES = 1 << 30  # of an answer
MOST_S = 120.0  # that an answer may take: a server that reads so slowly had better compute
BATCH_BYTES = 1 << 20  # read from the disk at a time


@dataclass
class SentCounters:
    num_blocks: int = 0
    num_bytes: int = 0


class BlockServer:
    """Answers questions for chains of blocks: those that the store has, from the first on, and the state after them."""

    def __init__(self, tier: DiskTier) -> None:
        self._tier = tier
        self._num_open = 0
        self.counters = SentCounters()

    async def answer(self, question: BlockQuestion, send: Send) -> None:
        """Raises ApiError before anything is sent."""
        if self._num_open >= MOST_AT_ONCE:
            raise ApiError(503, "other servers are being answered", headers={"Retry-After": "1"})
        hasher = self._tier.hasher
        if hasher is None or hasher.model != question.model:
            raise ApiError(404, "this server has no blocks of that model")
        self._num_open += 1
        try:
            async with asyncio.timeout(MOST_S):
                await self._send(question, send)
        finally:
            self._num_open -= 1

    async def _send(self, question: BlockQuestion, send: Send) -> None:
        owners = (PUBLIC_ID, question.namespace)
        held = await asyncio.to_thread(self._held, question.digests, owners)
        headers = [(b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": encode_count(len(held)), "more_body": True})
        digests: Sequence[bytes] = [*self._tier.state_digests(held[-1]), *held] if held else []
        while digests:
            data, digests = await asyncio.to_thread(self._read, digests, owners)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _held(self, digests: Sequence[bytes], owners: Sequence[bytes]) -> list[bytes]:
        """Blocks from the first on that these namespaces have; of a model with states, up to one with its state."""
        store, held = self._tier.store, list[bytes]()
        for digest in digests[: MOST_BYTES // self._tier.block_bytes]:
            if store.owner(digest) not in owners:
                break
            held.append(digest)
        while held and not all(store.owner(digest) in owners for digest in self._tier.state_digests(held[-1])):
            held.pop()
        return held

    def _read(self, digests: Sequence[bytes], owners: Sequence[bytes]) -> tuple[bytes, Sequence[bytes]]:
        """The first records, and the names of the others. A block that is gone or damaged ends the answer early, which
        the other server notices."""
        data, number = bytearray(), 0
        while number < len(digests) and len(data) < BATCH_BYTES:
            record = self._tier.store.owned_record(digests[number], owners)
            if record is None:
                return bytes(data), ()
            data += record
            number += 1
            self.counters.num_blocks += 1
            self.counters.num_bytes += len(record)
        return bytes(data), digests[number:]
