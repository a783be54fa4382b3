"""Models with states: a prefix hit gives the bits of a miss, and what hits save."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.engine import Engine, MemoryRequest, Usage, make_engine, make_runner, plan_memory
from surefoot.models import Model
from surefoot.ops import Backend, KvForm
from surefoot.runner import Runner, slot_bytes
from surefoot.sampling import TokenLogprobs

tiny = pytest.importorskip("tests.models.tiny")

BLOCK = 16
FAMILIES = ("lfm2", "qwen3_5", "granitemoehybrid", "nemotron_h")
families = pytest.mark.parametrize("family", FAMILIES)
Answer = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]


@functools.cache
def backend() -> Backend:
    return Backend(threads=2)


@functools.cache
def model(family: str) -> Model:
    return tiny.make_model(backend(), family)


class Server:
    """An engine, one request after the other."""

    def __init__(
        self, family: str, caching: bool, max_running: int = 4, megabytes: int = 64, context: int = 1024
    ) -> None:
        longer = replace(model(family), config=replace(model(family).config, context=context))
        sizes = slot_bytes(backend(), longer.config, block_size=BLOCK)
        request = MemoryRequest(sizes, megabytes << 20, None, max_running, max_chunk=256, block_size=BLOCK)
        self.capacity = plan_memory(longer, request, backend().variant)
        self.runner: Runner = make_runner(backend(), longer, self.capacity, KvForm.KEYS_TWO_LIMBS)
        self.engine: Engine = make_engine(self.capacity, self.runner, caching=caching)

    def ask(self, prompt: list[int], num_new: int = 3, n: int = 1) -> tuple[list[Answer], Usage]:
        params = SamplingParams(seed=len(prompt), max_tokens=num_new, logprobs=1, n=n, ignore_eos=True)
        self.engine.add(Request("r", tuple(prompt), params))
        answers: dict[SampleKey, Answer] = {}
        usage: Usage | None = None
        while self.engine.has_work:
            for event in self.engine.step():
                tokens, logprobs = answers.get(event.key, ((), ()))
                answers[event.key] = tokens + event.tokens, logprobs + event.logprobs
                usage = event.usage or usage
        self.engine.planner.audit()
        assert usage is not None
        return [answers[key] for key in sorted(answers)], usage


def text(seed: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, tiny.VOCAB, length)]


def compare_splits(family: str, count: int) -> None:
    """Prompts that leave one long text, or each other, anywhere."""
    hitting, missing = Server(family, caching=True), Server(family, caching=False)
    rng, num_hits = np.random.default_rng(5), 0
    recent: list[list[int]] = []
    for number in range(count):
        trunk = [text(0, 300), *recent][int(rng.integers(len(recent) + 1))]
        prompt = trunk[: int(rng.integers(1, len(trunk)))] + text(number + 1, int(rng.integers(1, 24)))
        n = 1 + int(rng.integers(8) == 0)
        got, usage = hitting.ask(prompt, n=n)
        want, plain = missing.ask(prompt, n=n)
        assert got == want
        assert plain.num_cached == 0
        num_hits += usage.num_cached > 0
        recent = [*recent[-2:], prompt]
    assert num_hits > count // 3


@families
def test_a_hit_gives_the_bits_of_a_miss(family: str) -> None:
    compare_splits(family, 150)


@pytest.mark.nightly
@families
def test_ten_thousand_hits_give_the_bits_of_misses(family: str) -> None:
    compare_splits(family, 10_000)


@families
def test_a_shared_prefix_is_reused(family: str) -> None:
    """Of 479 tokens: from the third request on, since the second finds where the first two part."""
    server, prefix = Server(family, caching=True), text(0, 479)
    used = [server.ask(prefix + text(number, 150))[1].num_cached for number in range(1, 5)]
    assert used[0] == 0
    assert min(used[2:]) >= 0.85 * 479


def test_short_states_are_reused_at_once() -> None:
    """Snapshots of short convolutions lie so close that the second request already finds one."""
    server, prefix = Server("lfm2", caching=True), text(0, 479)
    server.ask(prefix + text(1, 150))
    assert server.ask(prefix + text(2, 150))[1].num_cached >= 0.85 * 479


@families
def test_the_next_turn_computes_little_beyond_its_own_tokens(family: str) -> None:
    """With a template that writes the last ten tokens of the prompt anew."""
    server, first = Server(family, caching=True), text(0, 700)
    ((answer, _),), _ = server.ask(first, num_new=100)
    new = text(1, 40)
    _, usage = server.ask([*first, *answer, *new])
    assert usage.num_prompt - usage.num_cached <= len(new) + 2 * BLOCK
    rewritten = [*first[:-10], *text(2, 60)]
    _, usage = server.ask(rewritten)
    assert usage.num_prompt - usage.num_cached <= 60 + 256


@pytest.mark.nightly
@families
def test_the_next_turn_of_a_long_conversation(family: str) -> None:
    """15,000 tokens: minutes on a small machine."""
    server = Server(family, caching=True, megabytes=512, context=16_384)
    first, new = text(0, 15_000), text(1, 40)
    ((answer, _),), _ = server.ask(first, num_new=100)
    _, usage = server.ask([*first, *answer, *new])
    assert usage.num_prompt - usage.num_cached <= len(new) + 256
    _, usage = server.ask([*first[:-10], *new])
    assert usage.num_prompt - usage.num_cached <= len(new) + 256


@families
def test_two_turns_repeated_give_one_answer(family: str) -> None:
    server, first, tool = Server(family, caching=True), text(3, 200), text(4, 60)
    answers = set()
    for number in range(20):
        ((call, _),), _ = server.ask(first, num_new=24)
        answers.add(server.ask([*first, *call, *tool], num_new=24)[0][0])
        server.ask(text(100 + number, 250))  # others come between
    assert len(answers) == 1


@families
def test_snapshots_are_evicted_and_requests_go_on(family: str) -> None:
    """Memory for the running requests' states and two snapshots."""
    config = model(family).config
    tight = Server(family, caching=True)
    states = tight.capacity.layout.states
    assert states is not None
    assert states.num_promised == 8
    assert tight.capacity.layout.total_bytes <= 64 << 20
    assert states.slot_bytes == config.state_bytes
    for number in range(states.num_slots // 4):
        tight.ask(text(number, 200))
    assert tight.ask(text(0, 200)) == tight.ask(text(0, 200))


def test_too_many_requests_for_the_memory_are_refused() -> None:
    with pytest.raises(MemoryError, match="max-running"):
        Server("lfm2", caching=True, max_running=100_000, megabytes=1)
