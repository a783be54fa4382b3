"""Blocks from the disk: a hit gives the bits of a miss, to the right user, after restarts and preemptions."""

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.cache import block_reader, disk_tier
from surefoot.core import MEMORY_ONLY, Request, SampleKey, SamplingParams
from surefoot.disk_cache import BlockHasher, BlockStore, ask_to_forget
from surefoot.disk_cache.record import HEADER_BYTES, read_header
from surefoot.ops.backend import supported_variants
from surefoot.runner import slot_bytes
from tests.cache import prompt_rounds as rounds
from tests.cache.disk_tier import BLOCK, BUDGET, FAMILIES, HYBRIDS, backend, model, opened, run, tier_of, tiny


def requests(seed: int, count: int, longest: int = 300, users: tuple[str, ...] = ("",)) -> list[Request]:
    """Prompts that often begin alike."""
    rng = random.Random(seed)
    stems = [[rng.randrange(64) for _ in range(longest)] for _ in range(3)]
    made = []
    for number in range(count):
        stem = rng.choice(stems)[: rng.randrange(1, longest)]
        prompt = (*stem, *(rng.randrange(64) for _ in range(rng.randrange(1, 20))))
        params = SamplingParams(seed=number, max_tokens=rng.randrange(1, 40), logprobs=1, ignore_eos=True)
        made.append(Request(str(number), prompt, params, namespace=rng.choice(users), user=rng.choice(users)))
    return made


@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2"])
def test_no_byte_of_a_memory_only_namespace_reaches_the_disk(tmp_path: Path, family: str) -> None:
    asked = requests(5, 8, users=(f"{MEMORY_ONLY}ann",))
    with opened(family, tmp_path) as engine:
        expected, _ = run(engine, asked)
        _, usages = run(engine, [replace(request, id=f"again {request.id}") for request in asked])
        assert sum(usage.num_cached for usage in usages.values()) > 0, "memory serves it"
    store = BlockStore(tmp_path, BUDGET)
    assert (store.total_bytes, store.holdings()) == (0, [])
    store.close()
    with opened(family, tmp_path) as engine:
        answers, _ = run(engine, [replace(request, namespace="bob") for request in asked])
        assert answers == expected
    store = BlockStore(tmp_path, BUDGET)
    assert store.total_bytes > 0, "another user's blocks are kept"
    store.close()


@pytest.mark.parametrize("family", ["llama", "lfm2"])
def test_a_forgotten_user_leaves_nothing_that_waits_to_be_written(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(5, 8, users=("ann", "bob"))
    with opened(family, tmp_path) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(disk_tier, "COPY_BYTES", 0)  # nothing leaves the tree yet
            run(engine, asked)
        request = ask_to_forget(tmp_path, BlockHasher(b"").namespace("ann"))
        tier_of(engine)._heed_requests()
        assert not request.exists()
    store = BlockStore(tmp_path, BUDGET)
    assert {held.namespace for held in store.holdings()} == {BlockHasher(b"").namespace("bob")}
    store.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hit_gives_the_bits_of_a_miss_after_restarts(tmp_path: Path, family: str) -> None:
    asked = requests(1, 12)
    with opened(family, None) as engine:
        expected, _ = run(engine, asked)
    for count in range(2):
        with opened(family, tmp_path) as engine:
            half = asked[: 6 + 6 * count]
            answers, _ = run(engine, half)
            assert answers == {key: expected[key] for key in answers}
            assert len(answers) == len(half)
            assert (tier_of(engine).num_hit_tokens > 0) == (count > 0)
    with opened(family, tmp_path) as engine:
        for request in asked:
            answers, usages = run(engine, [request])
            assert answers == {key: expected[key] for key in answers}
            assert usages[request.id].num_cached == (len(request.prompt) - 1) // BLOCK * BLOCK
        assert tier_of(engine).store.counters.num_damaged == 0


@pytest.mark.parametrize("family", ["llama", *HYBRIDS])
def test_written_by_one_variant_read_by_another(tmp_path: Path, family: str) -> None:
    asked, seen = requests(2, 8), []
    variants = supported_variants()
    for number, variant in enumerate(("portable", *variants, variants[0])):
        with opened(family, tmp_path, variant=variant, threads=1 + number % 2) as engine:
            seen.append(run(engine, asked)[0])
            assert (tier_of(engine).num_hit_tokens > 0) == (number > 0)
    assert len(seen) >= 3
    assert all(answers == seen[0] for answers in seen)


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_users_never_share_and_public_prefixes_are_shared(tmp_path: Path, family: str) -> None:
    prompt = tuple(random.Random(3).randrange(64) for _ in range(100))
    params = SamplingParams(seed=1, max_tokens=2, ignore_eos=True)

    def cached(user: str, num_public: int = 0) -> int:
        with opened(family, tmp_path) as engine:
            _, usages = run(engine, [Request("r", prompt, params, namespace=user, num_public_tokens=num_public)])
        return usages["r"].num_cached

    assert cached("ann") == 0
    assert cached("ann") == 96
    assert cached("bob") == 0, "another user's blocks"
    assert cached("bob", 48) == 96, "his own, since nothing is public yet"
    assert cached("cid", 48) == 0
    assert cached("dan", 48) == 48, "what cid wrote as public"
    assert cached("eve") == 48, "public blocks serve requests that say nothing of them"
    assert cached("dan", 48) == 96
    store = BlockStore(tmp_path, BUDGET)
    num_blocks = store.forget(BlockHasher(family.encode()).namespace("ann"))
    assert num_blocks == 6 if family == "llama" else num_blocks > 6  # snapshots too
    store.close()
    assert (cached("ann", 48), cached("bob")) == (48, 96)


def test_a_small_memory_serves_from_the_disk_after_preemption(tmp_path: Path) -> None:
    """Samples outgrow the memory, are preempted, and come back from the disk."""
    rng = random.Random(4)
    params = SamplingParams(seed=1, max_tokens=150, logprobs=1, ignore_eos=True)
    asked = [Request(str(n), tuple(rng.randrange(64) for _ in range(150)), params) for n in range(6)]
    with opened("llama", None) as engine:
        expected, _ = run(engine, asked)
    with opened("llama", tmp_path, megabytes=small_megabytes("llama", 700)) as engine:
        answers, usages = run(engine, asked)
        assert engine.load().num_preemptions > 0
        assert tier_of(engine).num_hit_tokens > 0
    assert answers == expected
    assert all(usage.num_cached == 0 for usage in usages.values()), "what it computed itself is no hit"


def small_megabytes(family: str, num_tokens: int) -> float:
    """Memory for that many tokens, and for the states of four requests and four snapshots."""
    config = model(family).config
    token_bytes = sum(slot_bytes(backend(), config, block_size=BLOCK).values())
    return (num_tokens * token_bytes + 12 * config.state_bytes) / (1 << 20)


@pytest.mark.parametrize("family", FAMILIES)
def test_memory_too_small_for_all_that_the_disk_has(tmp_path: Path, family: str) -> None:
    asked = requests(5, 16, longest=200)
    with opened(family, tmp_path) as engine:
        expected, _ = run(engine, asked)
    with opened(family, tmp_path, megabytes=small_megabytes(family, 900)) as engine:
        answers, _ = run(engine, asked)
        assert tier_of(engine).num_hit_tokens > 0
    assert answers == expected


def test_cancelled_requests_leave_nothing_behind(tmp_path: Path) -> None:
    asked = requests(6, 8)
    with opened("llama", tmp_path) as engine:
        expected, _ = run(engine, asked)
    rng = random.Random(7)
    for _ in range(20):
        with opened("llama", tmp_path) as engine:
            for request in asked:
                engine.add(request)
            for _ in range(rng.randrange(4)):
                engine.step()
            left = [request for request in asked if rng.random() < 0.5]
            for request in asked:
                if request not in left:
                    engine.abort(request.id)
            answers, _ = run(engine, [])
            assert not tier_of(engine).is_reading
            for request in left:
                assert SampleKey(request.id) in answers
    assert len(expected) == 8


def test_cancelled_reads_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a block comes after its request has gone."""
    asked = requests(7, 6)
    with opened("llama", tmp_path) as engine:
        run(engine, asked)
    monkeypatch.setattr(block_reader, "AHEAD_BYTES", 1)  # one block at a time
    for number in range(4):
        with opened("llama", tmp_path) as engine:
            reader = tier_of(engine)._reader
            for request in asked:
                engine.add(request)
                engine.step()
                engine.abort(request.id)
                if number % 2:
                    engine.reset()
            while engine.has_work:
                engine.step()
            for _ in range(1000):
                if not reader._num_bytes:
                    break
                time.sleep(0.01)
            assert reader._num_bytes == 0


def test_a_reset_forgets_the_tree_but_not_the_disk(tmp_path: Path) -> None:
    asked = requests(8, 4)
    with opened("llama", tmp_path) as engine:
        expected, _ = run(engine, asked)
        engine.reset()
        answers, usages = run(engine, asked)
        assert answers == expected
        assert all(usages[each.id].num_cached == (len(each.prompt) - 1) // BLOCK * BLOCK for each in asked)


def test_damaged_blocks_are_computed_again(tmp_path: Path) -> None:
    asked = requests(9, 6)
    with opened("llama", tmp_path) as engine:
        expected, _ = run(engine, asked)
    (segment,) = tmp_path.glob("*.blocks")
    data = bytearray(segment.read_bytes())
    rng = random.Random(1)
    for _ in range(8):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    segment.write_bytes(data)
    with opened("llama", tmp_path) as engine:
        assert run(engine, asked)[0] == expected
        assert tier_of(engine).store.counters.num_damaged > 0


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_damaged_state_is_a_miss(tmp_path: Path, family: str) -> None:
    """Every record of a state has a flipped bit: the blocks alone serve nothing."""
    asked = requests(9, 6)
    with opened(family, tmp_path) as engine:
        expected, _ = run(engine, asked)
        state_bytes = tier_of(engine)._bytes.state_bytes
    (segment,) = tmp_path.glob("*.blocks")
    data, offset, rng, num_states = bytearray(segment.read_bytes()), 0, random.Random(2), 0
    while offset < len(data):
        header = read_header(data[offset : offset + HEADER_BYTES])
        if header.payload_bytes == state_bytes:
            data[offset + HEADER_BYTES + rng.randrange(state_bytes)] ^= 1 << rng.randrange(8)
            num_states += 1
        offset += header.record_bytes
    segment.write_bytes(data)
    assert num_states > 4
    with opened(family, tmp_path) as engine:
        assert run(engine, asked)[0] == expected
        counters = tier_of(engine).store.counters
        assert 0 < counters.num_damaged <= num_states
        assert tier_of(engine).num_hit_tokens == 0


def test_states_of_several_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of large models are."""
    monkeypatch.setattr(disk_tier, "PART_BYTES", 1000)
    asked = requests(13, 6)
    with opened("qwen3_5", None) as engine:
        expected, _ = run(engine, asked)
    for count in range(2):
        with opened("qwen3_5", tmp_path) as engine:
            assert run(engine, asked)[0] == expected
            assert (tier_of(engine).num_hit_tokens > 0) == (count > 0)


@pytest.mark.parametrize("family", HYBRIDS)
def test_the_next_turn_after_a_restart_computes_little(tmp_path: Path, family: str) -> None:
    rng = random.Random(14)
    prompt = tuple(rng.randrange(64) for _ in range(400))
    params = SamplingParams(seed=1, max_tokens=60, ignore_eos=True)
    with opened(family, tmp_path) as engine:
        answers, _ = run(engine, [Request("r", prompt, params)])
    ((answer, _),) = answers.values()
    with opened(family, tmp_path) as engine:
        _, usages = run(engine, [Request("r", (*prompt, *answer, *prompt[:20]), params)])
    assert usages["r"].num_prompt - usages["r"].num_cached <= 20 + 2 * BLOCK


def test_a_disk_that_fails_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests(12, 6)
    with opened("llama", tmp_path) as engine:
        expected, _ = run(engine, asked[:3])
        monkeypatch.setattr(tier_of(engine).store, "write", failing)
        more, _ = run(engine, asked[3:])
    with opened("llama", tmp_path) as engine:
        monkeypatch.setattr(tier_of(engine).store, "read", failing)
        assert run(engine, asked)[0] == expected | more
    with opened("llama", tmp_path) as engine:
        assert run(engine, asked)[0] == expected | more
        assert tier_of(engine).num_hit_tokens > 0


def failing(*_: object) -> None:
    raise RuntimeError("no such disk")


def compare_rounds(model: Path, folder: Path, count: int, each: int) -> None:
    """Prompts over restarts, written by one variant and read by another, of users who never share."""
    expected = rounds.in_process(rounds.Round(model, None, None, 2, 0, count))
    num_cached, shared = 0, rounds.SharedPrefixes()
    for given in restarts(model, folder, count, each):
        answers = rounds.in_process(given)
        assert {number: answer.digest for number, answer in answers.items()} == {
            number: expected[number].digest for number in range(given.first, given.first + given.count)
        }
        for number, answer in answers.items():
            shared.add(number, answer)
        assert all(answer.num_cached <= shared.longest(number) for number, answer in answers.items()), "another user's"
        num_cached += sum(answer.num_cached for answer in answers.values())
    assert num_cached > 30 * count


def restarts(model: Path, folder: Path, count: int, each: int) -> Iterator[rounds.Round]:
    """Variants take turns. The portable one answers a tenth as many prompts: a state takes it 16 times as long."""
    threads, first = random.Random(11), 0
    for variant in itertools.cycle(reversed(supported_variants())):
        size = min(max(1, each // 10) if variant == "portable" else each, count - first)
        yield rounds.Round(model, folder, variant, threads.choice([1, 2]), first, size)
        first += size
        if first == count:
            return


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_prompts_of_several_users_over_restarts(tmp_path: Path, family: str) -> None:
    (tmp_path / "model").mkdir()
    tiny.save(family, tmp_path / "model")
    compare_rounds(tmp_path / "model", tmp_path / "cache", 60, 20)


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_two_thousand_prompts_of_several_users_over_restarts(tmp_path: Path, family: str) -> None:
    (tmp_path / "model").mkdir()
    tiny.save(family, tmp_path / "model")
    compare_rounds(tmp_path / "model", tmp_path / "cache", 2000, 100)
