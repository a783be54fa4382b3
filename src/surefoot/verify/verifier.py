"""Runs the requests under each condition and compares with what each gets alone."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.api.answer import Answer
from surefoot.api.loading import Loaded, load_model
from surefoot.api.outputs import CompletionOutput
from surefoot.core import Request, SampleKey
from surefoot.engine import Engine, Event
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.ops import Backend, supported_variants
from surefoot.runner import DraftModel, Executor, Runner
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.speculate import Controller, Drafter, Lookup, Speculator
from surefoot.verify.conditions import Condition
from surefoot.verify.drafters import RULES, RandomDepths, Scripted
from surefoot.verify.hostile import HostileScheduler
from surefoot.verify.requests import make_requests
from surefoot.weights import Report

NEVER_MS = 1e12
ALONE = Condition("alone", max_chunk=512, caching=False, max_running=4)

Answers = Mapping[SampleKey, CompletionOutput]


@dataclass(frozen=True)
class Difference:
    request: str
    sample: int
    place: int  # the first token that differs, in itself or in its logprobs
    what: str  # ids, logprobs or text


@dataclass(frozen=True)
class Finding:
    """num_preemptions, num_cached, num_drafted, num_accepted: how hostile it really was (tokens of all requests)."""

    condition: Condition
    variant: str
    threads: int
    num_samples: int
    num_tokens: int
    num_steps: int
    num_preemptions: int
    num_cached: int
    num_drafted: int
    num_accepted: int
    seconds: float
    differences: tuple[Difference, ...]


class Verifier:
    """model: a GGUF file or a Hugging Face folder. num_requests, num_new: how many, and new tokens of each at most."""

    def __init__(
        self,
        model: str | Path,
        num_requests: int = 64,
        num_new: int = 24,
        float_format: str = "w8",
        report: Report = lambda done, total: None,
    ) -> None:
        """report: of weights that are loaded, for each variant anew."""
        self._path, self._format, self._report = model, float_format, report
        self._loaded: dict[str, Loaded] = {}
        self._backends: dict[tuple[str, int | None], Backend] = {}
        loaded = self._load(supported_variants()[0])
        config, ends = loaded.model.config, loaded.tokenizer.ids.ends
        self.requests = make_requests(num_requests, config.vocab_size, config.context, num_new, frozenset(ends))
        self._alone: Answers | None = None

    def check(self, conditions: Sequence[Condition]) -> Iterator[Finding]:
        for condition in conditions:
            yield self.run(condition)

    @property
    def alone(self) -> Answers:
        """What each request gets with nobody else there, on the best variant."""
        if self._alone is None:
            found: dict[SampleKey, CompletionOutput] = {}
            crowd = Crowd(self, ALONE)
            for request in self.requests:
                crowd.engine.reset()
                found |= crowd.run([request])
            self._alone = found
        return self._alone

    def run(self, condition: Condition) -> Finding:
        crowd, expected = Crowd(self, condition), self.alone
        start = time.perf_counter()
        found = crowd.run(self.requests, condition.arrivals)
        return Finding(
            condition,
            crowd.backend.variant,
            crowd.backend.threads,
            len(found),
            sum(len(answer.token_ids) for answer in found.values()),
            crowd.num_steps,
            crowd.engine.load().num_preemptions,
            crowd.num_cached,
            crowd.num_drafted,
            crowd.num_accepted,
            time.perf_counter() - start,
            tuple(differences(expected, found)),
        )

    # ---- what the crowd runs on ----

    def backend(self, condition: Condition) -> tuple[Loaded, Backend]:
        variant = condition.variant or supported_variants()[0]
        loaded, place = self._load(variant), (variant, condition.threads)
        if place not in self._backends:
            self._backends[place] = Backend(variant, condition.threads)
        return loaded, self._backends[place]

    def _load(self, variant: str) -> Loaded:
        """Weights are packed for their variant; one at a time is in memory."""
        if variant not in self._loaded:
            self._loaded = {variant: load_model(self._path, self._format, variant, None, report=self._report)}
        return self._loaded[variant]


class Crowd:
    """An engine under a condition, with the text layer on top."""

    def __init__(self, verifier: Verifier, condition: Condition) -> None:
        loaded, self.backend = verifier.backend(condition)
        self._loaded, self._condition = loaded, condition
        longest = max(len(request.prompt) + (request.params.max_tokens or 0) for request in verifier.requests)
        layout = make_layout(loaded.model.config.windows, condition, verifier.requests, longest)
        config = scheduling(condition, longest)
        runner = Runner(
            self.backend, loaded.model, longest, condition.max_running, condition.max_chunk,
            block_size=condition.block_size, num_blocks={group.window: group.num_blocks for group in layout.groups},
        )  # fmt: skip

        def planner() -> Scheduler:
            kv = KvManager(layout, condition.caching)
            if condition.preempt_every is None:
                return Scheduler(config, kv)
            return HostileScheduler(config, kv, condition.preempt_every)

        self.engine = Engine(planner, Executor(runner, speculator=self._speculator(verifier, longest)))
        self.num_steps = self.num_cached = self.num_drafted = self.num_accepted = 0

    def _speculator(self, verifier: "Verifier", longest: int) -> Speculator | None:
        name, vocab_size = self._condition.drafter, self._loaded.model.config.vocab_size
        if name is None:
            return None
        drafter: Drafter = Lookup()
        if name == "draft model":
            # Room for a few requests only: some get no drafts, some lose theirs.
            runner = Runner(self.backend, self._loaded.model, 4 * longest, self._condition.max_running, block_size=16)
            drafter = DraftModel(runner, vocab_size)
        if name in RULES:
            truth = {key: answer.token_ids for key, answer in verifier.alone.items()}
            drafter = Scripted(truth, RULES[name], vocab_size)
        return Speculator(drafter, Controller() if self._condition.governed else RandomDepths())

    def run(self, requests: Sequence[Request], arrivals: int | None = None) -> Answers:
        rng, waiting = random.Random(arrivals), list(requests)
        if arrivals is not None:
            rng.shuffle(waiting)
        answers = {
            SampleKey(request.id, number): Answer(self._loaded.tokenizer, request, number, True)
            for request in requests
            for number in range(request.params.n)
        }
        while waiting or self.engine.has_work:
            for _ in range(len(waiting) if arrivals is None else rng.randrange(3)):
                if waiting:
                    self.engine.add(waiting.pop())
            self._step(answers)
        return {key: answer.output() for key, answer in answers.items()}

    def _step(self, answers: Mapping[SampleKey, Answer]) -> None:
        self.num_steps += 1
        for event in self.engine.step():
            answer = answers[event.key]
            answer.feed(event)
            last: Event | None = event
            if answer.is_done and event.reason is None:
                last = self.engine.finish(event.key)
            if last is not None and last.usage is not None:
                self.num_cached += last.usage.num_cached if event.key.sample == 0 else 0
                self.num_drafted += last.usage.num_drafted
                self.num_accepted += last.usage.num_accepted


def make_layout(windows: Sequence[int], condition: Condition, requests: Sequence[Request], longest: int) -> KvLayout:
    """Room for a share of what could run at once, and always for the largest request."""
    probe = KvLayout(condition.block_size, tuple(KvGroup(1, window) for window in windows))

    def price(request: Request) -> tuple[int, ...]:
        num_new = request.params.max_tokens or 1
        return probe.price(len(request.prompt), num_new, request.params.n, condition.max_chunk)

    largest = map(max, *[price(request) for request in requests])
    full, share = probe.price(longest, 1, 1, condition.max_chunk), condition.memory * condition.max_running
    counts = [max(least, round(share * one)) for least, one in zip(largest, full, strict=True)]
    return KvLayout(
        condition.block_size, tuple(KvGroup(count, window) for count, window in zip(counts, windows, strict=True))
    )


def scheduling(condition: Condition, longest: int) -> SchedulerConfig:
    if condition.timed:
        return SchedulerConfig(longest, condition.max_running, max_chunk=condition.max_chunk)
    return SchedulerConfig(
        longest, condition.max_running, max_chunk=condition.max_chunk, first_chunk=condition.max_chunk,
        gap_ms=NEVER_MS, crowd_ms=NEVER_MS, max_gap_ratio=NEVER_MS, max_step_tokens=1024,
    )  # fmt: skip


def differences(expected: Answers, found: Answers) -> Iterator[Difference]:
    for key, answer in expected.items():
        other = found[key]
        if answer == other:
            continue
        what, place = "text or reason of its end", len(answer.token_ids)
        if answer.logprobs != other.logprobs:
            what, place = "logprobs", _first_difference(answer.logprobs or (), other.logprobs or ())
        if answer.token_ids != other.token_ids:
            what, place = "ids", _first_difference(answer.token_ids, other.token_ids)
        yield Difference(key.request, key.sample, place, what)


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
