"""Blocks from another server, without a network: a fetch gives the bits of a miss, to the right user, or is a miss."""

import asyncio
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.types import Message

from surefoot.cache import BlockQuestion, disk_tier, peer_blocks
from surefoot.cache.peer_blocks import BlockSizes, PeerBlocks, PeerOffer
from surefoot.core import Request, SamplingParams
from surefoot.disk_cache import PUBLIC_ID, BlockHasher
from surefoot.engine import Engine
from surefoot.fleet.frames import COUNT_BYTES, decode_count, decode_question, encode_question
from surefoot.fleet.replica.block_server import BlockServer
from tests.cache.disk_tier import BLOCK, FAMILIES, Answers, opened, run, tier_of

TOKENS = tuple(random.Random(4).randrange(64) for _ in range(150))
MOST_CACHED = (len(TOKENS) - 1) // BLOCK * BLOCK


class StoredReply:
    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.num_blocks = decode_count(self.read(COUNT_BYTES))

    def read(self, num_bytes: int) -> bytes:
        data = self._data.read(num_bytes)
        if len(data) < num_bytes:
            raise ConnectionError("ended early")
        return data

    def close(self) -> None: ...


class DirectClient:
    """Asks the other engine's tier. change: what becomes of the answer on its way."""

    def __init__(self, holder: Engine, change: Callable[[bytes], bytes] = lambda data: data) -> None:
        self._handout = BlockServer(tier_of(holder))
        self._change = change
        self.answers: list[bytes] = []

    def open(self, url: str, question: BlockQuestion, end: float) -> StoredReply:
        self.answers.append(asyncio.run(self._answer(decode_question(encode_question(question)))))
        return StoredReply(self._change(self.answers[-1]))

    async def _answer(self, question: BlockQuestion) -> bytes:
        parts: list[bytes] = []

        async def send(message: Message) -> None:
            parts.append(message.get("body", b""))

        await self._handout.answer(question, send)
        return b"".join(parts)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not decide whether blocks are fetched."""
    monkeypatch.setattr(peer_blocks.LinkSpeed, "seconds", lambda link, num_bytes: 0.0)
    monkeypatch.setattr(peer_blocks, "LEAST_PATIENCE_S", 300.0)
    monkeypatch.setattr(peer_blocks, "PAUSE_S", 0.0)


def request(user: str = "ann", num_public: int = 0) -> Request:
    params = SamplingParams(seed=1, max_tokens=6, logprobs=2, ignore_eos=True)
    return Request("0", TOKENS, params, namespace=user, num_public_tokens=num_public)


def keep_all(engine: Engine) -> None:
    while engine.keep_blocks():
        pass
    assert tier_of(engine).flush(60)


def run_offered(engine: Engine, asked: Request, num_held: int = len(TOKENS)) -> tuple[Answers, int]:
    """The answer, and how many tokens of the prompt were cached."""
    tier = tier_of(engine)
    offer = tier.offer("http://other", num_held, asked.prompt, asked.namespace, asked.num_public_tokens)
    assert offer is not None
    answers, usages = run(engine, [asked])
    assert tier.peers is not None
    tier.peers.withdraw(offer)
    return answers, usages["0"].num_cached


@pytest.mark.parametrize("family", FAMILIES)
def test_fetched_blocks_give_the_bits_of_computed_ones(tmp_path: Path, family: str) -> None:
    with opened(family, tmp_path / "a") as holder, opened(family, tmp_path / "b", variant="portable") as other:
        wanted, usages = run(holder, [request()])
        assert usages["0"].num_cached == 0
        keep_all(holder)
        client = DirectClient(holder)
        tier_of(other).use_peers(client)
        answers, num_cached = run_offered(other, request())
        assert answers == wanted
        assert num_cached == MOST_CACHED
        peers = tier_of(other).peers
        assert peers is not None
        assert peers.counters.num_fetched_tokens == MOST_CACHED
        assert tier_of(other).num_hit_tokens == 0
        assert (peers.counters.num_failures, peers.counters.num_damaged) == (0, 0)
        keep_all(other)
        run_offered(other, request())
        assert len(client.answers) == 1
    with opened(family, tmp_path / "b") as other:  # what was fetched is on the disk
        assert run(other, [request()])[1]["0"].num_cached == MOST_CACHED


def test_a_server_fetches_only_what_its_disk_lacks(tmp_path: Path) -> None:
    short = Request("0", TOKENS[:70], request().params, namespace="ann")
    with opened("llama", tmp_path / "b") as other:
        run(other, [short])
        keep_all(other)
    with opened("llama", tmp_path / "a") as holder, opened("llama", tmp_path / "b") as other:
        wanted, _ = run(holder, [request()])
        keep_all(holder)
        tier_of(other).use_peers(DirectClient(holder))
        assert run_offered(other, request()) == (wanted, MOST_CACHED)
        peers = tier_of(other).peers
        assert peers is not None
        assert tier_of(other).num_hit_tokens == 64
        assert peers.counters.num_fetched_tokens == MOST_CACHED - 64


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_flipped_bits_and_cut_answers_are_misses(tmp_path: Path, family: str) -> None:
    rng = random.Random(5)
    with opened(family, tmp_path / "a") as holder:
        wanted, _ = run(holder, [request()])
        keep_all(holder)
        for number in range(12):
            is_cut = number % 3 == 0

            def change(data: bytes, is_cut: bool = is_cut) -> bytes:
                place = rng.randrange(COUNT_BYTES, len(data))
                if is_cut:
                    return data[:place]
                return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]

            with opened(family, tmp_path / f"b{number}") as other:
                tier_of(other).use_peers(DirectClient(holder, change))
                answers, num_cached = run_offered(other, request())
                assert answers == wanted
                assert num_cached < MOST_CACHED
                peers = tier_of(other).peers
                assert peers is not None
                assert (peers.counters.num_failures, peers.counters.num_damaged) == (is_cut, not is_cut)


@pytest.mark.parametrize(
    ("user", "num_public", "num_cached"), [("bob", 0, 0), ("bob", 70, 64), ("ann", 70, MOST_CACHED)]
)
def test_users_get_their_own_blocks_and_public_ones(
    tmp_path: Path, user: str, num_public: int, num_cached: int
) -> None:
    with opened("llama", tmp_path / "a") as holder, opened("llama", tmp_path / "b") as other:
        answers, _ = run(holder, [request("ann", num_public)])
        keep_all(holder)
        tier_of(other).use_peers(DirectClient(holder))
        assert run_offered(other, request(user, num_public)) == (answers, num_cached)


def test_another_users_blocks_are_not_given_for_their_names(tmp_path: Path) -> None:
    """Not to a server that names them and says that they are somebody else's."""
    with opened("llama", tmp_path) as holder:
        run(holder, [request("ann")])
        keep_all(holder)
        tier, client = tier_of(holder), DirectClient(holder)
        hasher = tier.hasher
        assert hasher is not None
        ann, bob = hasher.namespace("ann"), hasher.namespace("bob")
        digest = hasher.child(hasher.root, ann, TOKENS[:BLOCK])
        for namespace, count in ((ann, 1), (bob, 0), (PUBLIC_ID, 0)):
            assert client.open("", BlockQuestion(hasher.model, namespace, (digest,)), 0.0).num_blocks == count
        with pytest.raises(Exception, match="no blocks of that model"):
            client.open("", BlockQuestion(BlockHasher(b"other").model, ann, (digest,)), 0.0)


def test_states_of_several_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_tier, "PART_BYTES", 100)
    with opened("qwen3_5", tmp_path / "a") as holder, opened("qwen3_5", tmp_path / "b") as other:
        wanted, _ = run(holder, [request()])
        keep_all(holder)
        tier_of(other).use_peers(DirectClient(holder))
        assert run_offered(other, request()) == (wanted, MOST_CACHED)


def test_a_server_that_is_not_there_costs_no_answer(tmp_path: Path) -> None:
    class Nobody:
        def open(self, url: str, question: BlockQuestion, end: float) -> StoredReply:
            raise ConnectionRefusedError

    with opened("llama", tmp_path) as engine:
        tier_of(engine).use_peers(Nobody())
        _, num_cached = run_offered(engine, request())
        assert num_cached == 0
        peers = tier_of(engine).peers
        assert peers is not None
        assert peers.counters.num_failures == 1


def test_the_quicker_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    peers = PeerBlocks(DirectClient.__new__(DirectClient), BlockSizes(BLOCK, 16 * 22_000))
    url = "http://other"
    # 100 blocks: 35 MB, of which the assumed link takes 0.36 s. Computing takes 16 s at 10 ms a token.
    assert peers.patience_s(url, 100, 0.01) == pytest.approx(4 * 0.357)
    assert peers.patience_s(url, 100, 0.0001) is None
    assert peers.patience_s(url, 0, 0.01) is None
    assert peers.patience_s(url, 1, 0.01) == peer_blocks.LEAST_PATIENCE_S
    assert peers.patience_s(url, 1, 0.0) is not None  # it is not known yet how long computing takes
    for _ in range(20):
        peers.note_time(url, 0.1, 1_000_000, 1.0)
    assert peers.link(url).rate == pytest.approx(1e6, rel=0.1)
    assert peers.patience_s(url, 100, 0.01) is None
    assert peers.typical_speed().token_s == pytest.approx(0.022, rel=0.1)
    peers.pause("http://third", 60.0)
    assert peers.patience_s("http://third", 100, 0.1) is None


def test_offers_are_found_by_their_next_block() -> None:
    peers = PeerBlocks(DirectClient.__new__(DirectClient), BlockSizes(BLOCK, 100))
    first, second = (PeerOffer("u", b"n", tuple(bytes([kind, number]) for number in range(3)), 3) for kind in (1, 2))
    peers.offer(first)
    peers.offer(second)
    assert peers.find(b"n", 1, [bytes([2, 1])]) is second
    assert peers.find(b"m", 1, [bytes([2, 1])]) is None
    assert peers.find(b"n", 3, [bytes([2, 1])]) is None
    peers.withdraw(second)
    assert peers.find(b"n", 1, [bytes([2, 1])]) is None
    peers.withdraw(first)
