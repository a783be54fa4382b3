"""Blocks that another server of the fleet holds: fetched where that is predicted to take less time than computing them.

A fetched block is checked against its name and its checksum, and then enters the tree as one from the disk does. A
fetch that fails, takes too long or does not check is a miss.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.disk_cache import HEADER_BYTES, PUBLIC_ID, BlockHasher, BlockStore, DamagedRecord, read_header

ASSUMED_RATE = 100e6  # bytes a second, before a fetch was timed
ASSUMED_START_S = 0.005  # from the question to the first byte, before a fetch was timed
LEAST_PATIENCE_S = 1.0
PATIENCE = 4  # times the predicted time, after which a fetch is late
PAUSE_S = 30.0  # without questions to a server, after a fetch from it has failed
BUSY_PAUSE_S = 1.0  # the same, after it has said that it is busy
NEWEST = 0.3  # share of the newest fetch in the estimates
MAX_LINKS = 1024


class PeerBusy(OSError):
    """The other server answers too many questions already."""


class PeerReply(Protocol):
    """A server's answer: the number of blocks that it sends, then their records."""

    num_blocks: int

    def read(self, num_bytes: int) -> bytes:
        """Exactly that many bytes. Raises OSError."""

    def close(self) -> None: ...


class PeerClient(Protocol):
    """Asks other servers of the fleet."""

    def open(self, url: str, question: "BlockQuestion", end: float) -> PeerReply:
        """end: by time.monotonic, after which every read fails. Raises OSError."""


@dataclass(frozen=True)
class BlockQuestion:
    """A chain of blocks that a server lacks. The answer has those from the first on that the other server holds."""

    model: bytes  # BlockHasher.model
    namespace: bytes  # of its blocks, besides public ones
    digests: tuple[bytes, ...]


@dataclass(frozen=True)
class BlockSizes:
    """What a model keeps of tokens."""

    block_tokens: int
    block_bytes: int
    state_part_bytes: tuple[int, ...] = ()  # of each part of the state after a block; empty: the model has no states

    @property
    def token_bytes(self) -> float:
        return self.block_bytes / self.block_tokens


@dataclass(frozen=True, eq=False)
class PeerOffer:
    """Another server is said to hold the first blocks of a prompt."""

    url: str
    namespace: bytes
    digests: tuple[bytes, ...]  # of all full blocks of the prompt
    num_blocks: int  # that it holds, as far as is known


@dataclass(frozen=True)
class FetchSpeed:
    """How long a fetch is predicted to take."""

    start_s: float  # until the first block comes
    token_s: float  # for each token


@dataclass
class PeerCounters:
    num_fetched_tokens: int = 0
    fetched_bytes: int = 0
    num_failures: int = 0  # fetches that ended early: no connection, no answer in time
    num_damaged: int = 0  # fetches that ended early: a record was not the one asked for, or a bit was wrong


@dataclass
class LinkSpeed:
    """How quickly a server answers, as measured."""

    start_s: float = ASSUMED_START_S
    rate: float = ASSUMED_RATE
    paused_until: float = 0.0

    def seconds(self, num_bytes: int) -> float:
        return self.start_s + num_bytes / self.rate


class PeerBlocks:
    """What other servers offer, and how long fetching takes. Safe for threads."""

    def __init__(self, client: PeerClient, sizes: BlockSizes) -> None:
        self.client = client
        self.sizes = sizes
        self.counters = PeerCounters()
        self._typical = LinkSpeed()  # of all servers
        self._links: dict[str, LinkSpeed] = {}
        self._offers: dict[bytes, list[PeerOffer]] = {}  # by namespace
        self._lock = threading.Lock()

    def offer(self, offer: PeerOffer) -> None:
        with self._lock:
            self._offers.setdefault(offer.namespace, []).append(offer)

    def withdraw(self, offer: PeerOffer) -> None:
        with self._lock:
            self._offers[offer.namespace].remove(offer)
            if not self._offers[offer.namespace]:
                del self._offers[offer.namespace]

    def find(self, namespace: bytes, num_cached: int, digests: Sequence[bytes]) -> PeerOffer | None:
        """The offer of the chain that goes on with one of these after its cached blocks."""
        with self._lock:
            for offer in self._offers.get(namespace, ()):
                if len(offer.digests) > num_cached and offer.digests[num_cached] in digests:
                    return offer
        return None

    # ---- links ----

    def link(self, url: str) -> LinkSpeed:
        with self._lock:
            if url not in self._links:
                if len(self._links) >= MAX_LINKS:
                    del self._links[next(iter(self._links))]
                self._links[url] = LinkSpeed(self._typical.start_s, self._typical.rate)
            return self._links[url]

    def typical_speed(self) -> FetchSpeed:
        return FetchSpeed(self._typical.start_s, self.sizes.token_bytes / self._typical.rate)

    def patience_s(self, url: str, num_blocks: int, token_s: float) -> float | None:
        """How long fetching these blocks may take; None: computing them is predicted to be quicker. token_s: to compute
        a token; 0: not known."""
        link = self.link(url)
        if num_blocks <= 0 or time.monotonic() < link.paused_until:
            return None
        fetch_s = link.seconds(num_blocks * self.sizes.block_bytes)
        compute_s = num_blocks * self.sizes.block_tokens * token_s
        if token_s and fetch_s >= compute_s:
            return None
        return max(LEAST_PATIENCE_S, min(PATIENCE * fetch_s, compute_s or PATIENCE * fetch_s))

    def note_time(self, url: str, start_s: float, num_bytes: int, seconds: float) -> None:
        for link in (self.link(url), self._typical):
            link.start_s += NEWEST * (start_s - link.start_s)
            if num_bytes >= self.sizes.block_bytes:
                link.rate += NEWEST * (num_bytes / max(seconds, 1e-6) - link.rate)

    def pause(self, url: str, seconds: float) -> None:
        """Ask the server nothing for a while."""
        self.link(url).paused_until = time.monotonic() + seconds


class PeerFetch:
    """The source of one chain: the disk as far as it goes, then the other server. Used by one thread."""

    def __init__(
        self,
        peers: PeerBlocks,
        store: BlockStore,
        hasher: BlockHasher,
        offer: PeerOffer,
        num_cached: int,
        token_s: float,
    ) -> None:
        """num_cached: blocks of the chain that memory has. token_s: to compute a token; 0: not known."""
        self._peers = peers
        self._store = store
        self._hasher = hasher
        self._offer = offer
        self._num_cached = num_cached
        self._token_s = token_s
        self._began = time.monotonic()
        self._reply: PeerReply | None = None
        self._due: Mapping[bytes, int] = {}  # bytes of each record's payload that the server is to send
        self._start_s = self._read_s = 0.0
        self._num_bytes = 0

    def open(self) -> None:
        """Ask the other server for the blocks that the disk lacks, if that is still quicker than computing them."""
        offer, first = self._offer, self._num_cached
        while first < len(offer.digests) and self._store.contains(offer.digests[first]):
            first += 1
        patience_s = self._peers.patience_s(offer.url, min(offer.num_blocks, len(offer.digests)) - first, self._token_s)
        if patience_s is None:
            return
        digests, asked = offer.digests[first:], time.monotonic()
        question = BlockQuestion(self._hasher.model, offer.namespace, digests)
        try:
            self._reply = self._peers.client.open(offer.url, question, self._began + patience_s)
        except PeerBusy:
            self._fail(BUSY_PAUSE_S)
            return
        except (OSError, ValueError):
            self._fail(PAUSE_S)
            return
        self._start_s = time.monotonic() - asked
        self._due = self._promised(digests[: self._reply.num_blocks])

    def _promised(self, digests: Sequence[bytes]) -> Mapping[bytes, int]:
        sizes = self._peers.sizes
        due = dict.fromkeys(digests, sizes.block_bytes)
        for part, num_bytes in enumerate(sizes.state_part_bytes if digests else ()):
            due[self._hasher.state(digests[-1], part)] = num_bytes
        return due

    def contains(self, digest: bytes) -> bool:
        return digest in self._due or self._store.contains(digest)

    def is_due(self, digest: bytes) -> bool:
        """Whether the other server is to send it."""
        return digest in self._due

    def read(self, digest: bytes) -> bytes | None:
        """The block's payload; None if it did not come, or is not whole."""
        if digest not in self._due:
            return self._store.read(digest)
        try:
            payload = self._next(digest)
        except DamagedRecord:
            self._fail(PAUSE_S, is_damaged=True)
            return None
        except OSError:
            self._fail(PAUSE_S)
            return None
        self._num_bytes += len(payload)
        self._peers.counters.fetched_bytes += len(payload)
        return payload

    def _next(self, digest: bytes) -> bytes:
        """Records that come before it are passed over. Raises OSError, DamagedRecord."""
        began, allowed = time.monotonic(), (PUBLIC_ID, self._offer.namespace)
        while True:
            assert self._reply is not None
            header = read_header(self._reply.read(HEADER_BYTES))
            name = header.name
            is_expected = name.digest in self._due and header.payload_bytes == self._due[name.digest]
            if not is_expected or name.model != self._hasher.model or name.namespace not in allowed:
                raise DamagedRecord("a block that was not asked for")
            payload = self._reply.read(header.payload_bytes)
            header.check(payload)
            if name.digest == digest:
                self._read_s += time.monotonic() - began
                return payload

    def _fail(self, pause_s: float, is_damaged: bool = False) -> None:
        counters = self._peers.counters
        counters.num_damaged += is_damaged
        counters.num_failures += not is_damaged
        self._peers.pause(self._offer.url, pause_s)
        self._due = {}

    def close(self) -> None:
        if self._reply is not None:
            self._reply.close()
            self._peers.note_time(self._offer.url, self._start_s, self._num_bytes, self._read_s)
