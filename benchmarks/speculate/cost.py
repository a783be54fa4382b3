"""Measures the cost of verifying drafts: durations of steps with random drafts of a fixed depth."""

import itertools
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.api import LLM, SamplingParams
from surefoot.bench.harness.workloads import ids
from surefoot.core import Request, SampleKey
from surefoot.engine import Engine, make_engine
from surefoot.speculate import MAX_STEP_DRAFTS, DraftOffer, Speculator, TargetRow

BATCHES, DEPTHS = (1, 8, 32), (0, 1, 2, 4, 7, 8, 12, 16, 32)
PROMPT_TOKENS = 32


@dataclass(frozen=True)
class Cost:
    """The cost of a step at one batch size and depth."""

    num_requests: int
    depth: int  # drafted tokens for each request
    ms: float  # median


class _RandomDrafter:
    """A Drafter and a DepthChooser that drafts `depth` random tokens."""

    def __init__(self, vocab_size: int) -> None:
        self.depth, self._vocab_size, self._rng = 0, vocab_size, random.Random(1)

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None: ...
    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None: ...
    def end(self, key: SampleKey) -> None: ...
    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [DraftOffer(max_depth)] * len(keys)

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {key: ids(self._rng, depth, self._vocab_size) for key, depth in depths.items()}

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def can_pay(self, num_tokens: int) -> bool:
        return self.depth > 0

    def depths(self, offers: Mapping[SampleKey, DraftOffer], num_tokens: int) -> dict[SampleKey, int]:
        return dict.fromkeys(offers, self.depth)


def measure_costs(llm: LLM, batches: Sequence[int], seconds: float) -> list[Cost]:
    """The cost of a step at each batch size and depth. Depths take turns, so that noise hits all alike.

    Uses a separate engine over the model's memory: reset the model's own engine afterwards.
    """
    drafter = _RandomDrafter(llm.config.vocab_size)
    engine = make_engine(llm.capacity, llm.runner, None, False, Speculator(drafter, drafter))
    costs = []
    for num_requests in batches:
        depths = [depth for depth in DEPTHS if num_requests * depth <= MAX_STEP_DRAFTS]
        times: dict[int, list[float]] = {depth: [] for depth in depths}
        for depth, ms in _steps(engine, drafter, num_requests, depths, seconds / len(batches), llm):
            times[depth].append(ms)
        costs += [Cost(num_requests, depth, statistics.median(samples)) for depth, samples in times.items() if samples]
    return costs


def _steps(
    engine: Engine, drafter: _RandomDrafter, num_requests: int, depths: Sequence[int], seconds: float, llm: LLM
) -> Iterator[tuple[int, float]]:
    params = SamplingParams(temperature=0, max_tokens=llm.max_context - PROMPT_TOKENS, ignore_eos=True)
    for number in range(num_requests):
        prompt = ids(random.Random(number), PROMPT_TOKENS, llm.config.vocab_size)
        engine.add(Request(f"cost {number}", prompt, params))
    drafter.depth, started = 0, set[SampleKey]()
    while len(started) < num_requests:
        started |= {event.key for event in engine.step()}
    deadline = time.perf_counter() + seconds
    for num_steps, depth in enumerate(itertools.cycle(depths), 1):
        is_late = num_steps > 3 * len(depths) and time.perf_counter() > deadline
        if is_late or not engine.has_work:
            break
        drafter.depth = depth
        engine.step()  # which drafts
        drafter.depth = 0
        engine.step()  # which verifies
        if engine.last_step_tokens == num_requests * (depth + 1) and num_steps > len(depths):
            yield depth, engine.last_step_ms
    for number in range(num_requests):
        engine.abort(f"cost {number}")
    while engine.has_work:
        engine.step()
