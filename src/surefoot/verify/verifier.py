"""Runs requests alone, then under each condition, and compares the answers."""

import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot.api.answers import AnswerBuilder, CompletionOutput, as_token_logprobs
from surefoot.api.loading import Loaded, load_model
from surefoot.core import Request, SampleKey
from surefoot.engine import Engine, Event
from surefoot.formats import AUTO_FORMAT
from surefoot.kv import KvGroup, KvLayout, KvManager, StateLayout
from surefoot.ops import Backend, supported_variants
from surefoot.runner import DraftModel, Executor, Runner, SessionRunner
from surefoot.sampling import GrammarError, Grammars
from surefoot.sampling.grammar import json_grammar, regex_grammar
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.speculate import DepthController, Drafter, LookupDrafter, Speculator
from surefoot.verify.conditions import Condition, HostileScheduler
from surefoot.verify.drafters import RULES, RandomDepths, ScriptedDrafter
from surefoot.verify.findings import EMBEDDING, Answers, Finding, differences
from surefoot.verify.requests import DATE, MAX_RANDOM_PROMPT, SCHEMA, Traits, make_requests
from surefoot.weights import Report

NEVER_MS = 1e12  # as a target time: chunks do not depend on measured time
ALONE = Condition("alone", max_chunk=512, caching=False, max_running=4)

MAX_PROMPT_TOKENS = 4608  # tokens of the longest prompt, by default
SHARE = 2.0  # time for a condition on another variant, as a multiple of the slowest condition on the best variant
MIN_SHARE_S = 20.0  # minimum time for a condition on another variant
NUM_PILOTS = 2  # requests that are run to estimate a variant's speed

IsOver = Callable[[], bool]


class Verifier:
    """Compares answers under conditions with the answers of requests that ran alone on the best variant.

    model: a GGUF file or a Hugging Face folder. num_requests: requests with random tokens, besides the natural ones.
    num_new: longest answer in tokens. longest: tokens of the longest prompt. min_share_s: minimum time for each
    condition on another variant. report: progress of loading weights, again for each variant. report_alone: of running
    requests alone.
    """

    def __init__(
        self,
        model: str | Path,
        num_requests: int = 64,
        num_new: int = 24,
        float_format: str = AUTO_FORMAT,
        longest: int = MAX_PROMPT_TOKENS,
        min_share_s: float = MIN_SHARE_S,
        report: Report = lambda done, total: None,
        report_alone: Report = lambda done, total: None,
    ) -> None:
        self._path, self._format, self._report, self._report_alone = model, float_format, report, report_alone
        self._loaded: dict[str, Loaded] = {}
        self._backends: dict[tuple[str, int | None], Backend] = {}
        loaded = self._load(supported_variants()[0])
        config, tokenizer = loaded.model.config, loaded.tokenizer
        self.grammars = Grammars(tokenizer, tokenizer.ids.ends)
        grammars = usable_grammars(self.grammars)
        self.has_grammars = bool(grammars)  # whether some of the requests have a grammar
        ends = frozenset(tokenizer.ids.ends)
        traits = Traits(
            config.vocab_size, config.context, ends, config.windows, tokenizer.encode, grammars, longest
        )  # fmt: skip
        self.requests = make_requests(traits, num_requests, num_new)
        self._alone: dict[SampleKey, CompletionOutput] | None = None
        self._least_share_s = min_share_s
        self._slowest_s = 0.0  # of complete runs on the best variant

    def predict_s(self, conditions: Sequence[Condition]) -> float:
        """Time for all of it, by the speed of the first requests: right to a factor of two or so. A condition takes
        about as long as all requests alone; on another variant at most its share."""
        pilots = self.requests[:NUM_PILOTS]
        start = time.perf_counter()
        ConditionedEngine(self, ALONE, pilots).run(pilots)
        per_token = (time.perf_counter() - start) / sum(map(_num_tokens, pilots))
        alone = per_token * sum(map(_num_tokens, self.requests))
        num_elsewhere = sum(self._is_elsewhere(condition) for condition in conditions)
        share_s = max(self._least_share_s, SHARE * alone)
        return (1 + len(conditions) - num_elsewhere) * alone + num_elsewhere * share_s

    @staticmethod
    def _is_elsewhere(condition: Condition) -> bool:
        return condition.variant not in (None, supported_variants()[0])

    def check(self, conditions: Sequence[Condition], is_over: IsOver = lambda: False) -> Iterator[Finding]:
        """A finding for each condition, until `is_over`. Conditions on other variants get a share of the time."""
        self.measure_alone(is_over)
        for condition in conditions:
            is_elsewhere = self._is_elsewhere(condition)
            share_s = max(self._least_share_s, SHARE * self._slowest_s) if is_elsewhere else None
            if is_over():
                return
            finding = self.run(condition, share_s, is_over)
            if finding.num_samples:
                yield finding
            if finding.is_whole and not is_elsewhere:
                self._slowest_s = max(self._slowest_s, finding.seconds)

    @property
    def alone(self) -> Answers:
        """Each request's answers when it runs alone, on the best variant."""
        return self.measure_alone()

    def measure_alone(self, is_over: IsOver = lambda: False) -> Answers:
        """Runs each request alone, until `is_over`. Requests that did not run are left out of all conditions."""
        if self._alone is None:
            self._alone = {}
            engine = ConditionedEngine(self, ALONE, self.requests)
            for number, request in enumerate(self.requests):
                if is_over():
                    self.requests = self.requests[:number]
                    break
                engine.engine.reset()
                self._alone |= engine.run([request])
                self._report_alone(number + 1, len(self.requests))
        return self._alone

    def run(self, condition: Condition, share_s: float | None = None, is_over: IsOver = lambda: False) -> Finding:
        """Runs the requests under a condition. share_s: time limit; only requests that probably fit are run."""
        expected = self.alone
        requests = [
            request for request in self.requests if not condition.is_short or len(request.prompt) <= MAX_RANDOM_PROMPT
        ]
        num_samples = sum(request.params.n for request in requests)
        if share_s is not None:
            requests = self._affordable(requests, condition, share_s, is_over)
        if condition.cut is not None:
            requests = [continued(request, expected, condition.cut) for request in requests]
        engine = ConditionedEngine(self, condition, requests)
        start = time.perf_counter()
        answers = engine.run(requests, condition.arrivals, is_over, expected)
        num_preemptions = engine.engine.load().num_preemptions
        is_whole = len(answers) == num_samples
        return Finding(
            condition,
            engine.backend.variant,
            engine.backend.threads,
            len(requests),
            is_whole,
            _unmet(condition, num_preemptions, engine.num_cached, engine.num_drafted) if is_whole else (),
            len(answers),
            sum(len(answer.token_ids) for answer in answers.values()),
            engine.num_steps,
            num_preemptions,
            engine.num_cached,
            engine.num_drafted,
            engine.num_accepted,
            time.perf_counter() - start,
            tuple(differences(expected, answers)),
        )

    def _affordable(
        self, requests: Sequence[Request], condition: Condition, share_s: float, is_over: IsOver
    ) -> list[Request]:
        """Requests that fit into the time, by the speed of the first few. Long requests are skipped if others fit."""
        pilots = requests[:NUM_PILOTS]
        engine = ConditionedEngine(self, condition, pilots)
        start = time.perf_counter()
        engine.run(pilots, condition.arrivals, is_over)
        budget = share_s * sum(map(_num_tokens, pilots)) / (time.perf_counter() - start)
        chosen = []
        for request in requests:
            if request in pilots or _num_tokens(request) <= budget:
                chosen.append(request)
                budget -= _num_tokens(request)
        return chosen

    # ---- models and backends ----

    def backend(self, condition: Condition) -> tuple[Loaded, Backend]:
        variant = condition.variant or supported_variants()[0]
        loaded, key = self._load(variant), (variant, condition.threads)
        if key not in self._backends:
            self._backends[key] = Backend(variant, condition.threads)
        return loaded, self._backends[key]

    def _load(self, variant: str) -> Loaded:
        """The model for a variant. Weights are packed for one variant at a time, to save memory."""
        if variant not in self._loaded:
            self._loaded = {variant: load_model(self._path, self._format, variant, None, report=self._report)}
        return self._loaded[variant]


class ConditionedEngine:
    """An engine under a condition, which also decodes answers to text."""

    def __init__(self, verifier: Verifier, condition: Condition, requests: Sequence[Request]) -> None:
        """requests: all that will run, since memory is sized for them."""
        loaded, self.backend = verifier.backend(condition)
        self._loaded, self._condition = loaded, condition
        longest = max(len(request.prompt) + (request.params.max_tokens or 0) for request in requests)
        layout = make_layout(loaded.model.config.windows, condition, requests, longest)
        if loaded.model.config.states:
            layout = replace(layout, states=make_state_layout(condition))
        config = scheduling(condition, longest)
        runner = Runner(
            self.backend, loaded.model, longest, {group.window: group.num_blocks for group in layout.groups},
            condition.max_chunk, block_size=condition.block_size,
            num_slots=0 if layout.states is None else layout.states.num_slots,
        )  # fmt: skip

        def planner() -> Scheduler:
            kv = KvManager(layout, condition.caching)
            if condition.preempt_every is None:
                return Scheduler(config, kv)
            return HostileScheduler(config, kv, condition.preempt_every)

        speculator = self._speculator(verifier, longest)
        self.engine = Engine(planner, Executor(runner, verifier.grammars, speculator))
        self.num_steps = self.num_cached = self.num_drafted = self.num_accepted = 0

    def _speculator(self, verifier: "Verifier", longest: int) -> Speculator | None:
        name, vocab_size = self._condition.drafter, self._loaded.model.config.vocab_size
        if name is None:
            return None
        drafter: Drafter = LookupDrafter()
        if name == "draft model" and not self._loaded.model.config.states:  # a draft model rolls back: states cannot
            # Memory for a few requests only: some get no drafts, some lose theirs.
            model, max_running = self._loaded.model, self._condition.max_running
            sessions = SessionRunner.make(self.backend, model, 4 * longest, max_running, block_size=16)
            drafter = DraftModel(sessions, vocab_size)
        if name in RULES:
            answers = {key: answer.token_ids for key, answer in verifier.alone.items()}
            drafter = ScriptedDrafter(answers, RULES[name], vocab_size)
        return Speculator(drafter, DepthController() if self._condition.governed else RandomDepths())

    def run(
        self,
        requests: Sequence[Request],
        arrivals: int | None = None,
        is_over: IsOver = lambda: False,
        known: Answers | None = None,
    ) -> dict[SampleKey, CompletionOutput]:
        """Runs the requests until `is_over`. Returns the answers that ended. known: answers of which requests may have
        begun."""
        rng, waiting = random.Random(arrivals), list(requests)
        if arrivals is not None:
            rng.shuffle(waiting)
        answers = {
            SampleKey(request.id, number): AnswerInProgress(
                AnswerBuilder(self._loaded.tokenizer, request, number, True), request.params.grammar is not None
            )
            for request in requests
            for number in range(request.params.n)
        }
        for request in requests:
            for number, tokens in enumerate(request.begun):
                key = SampleKey(request.id, number)
                feed_begun(answers[key].answer, key, (known or {})[key], len(tokens))
        while (waiting or self.engine.has_work) and not is_over():
            for _ in range(len(waiting) if arrivals is None else rng.randrange(3)):
                if waiting:
                    self.engine.add(waiting.pop())
            self._step(answers)
        return {key: progress.output() for key, progress in answers.items() if progress.answer.is_done}

    def _step(self, answers: Mapping[SampleKey, "AnswerInProgress"]) -> None:
        self.num_steps += 1
        for event in self.engine.step():
            answer = answers[event.key].answer
            answer.feed(event)
            last: Event | None = event
            answers[event.key].embedding = event.embedding or answers[event.key].embedding
            if answer.is_done and event.reason is None:
                last = self.engine.finish(event.key)
            if last is not None and last.usage is not None:
                self.num_cached += last.usage.num_cached if event.key.sample == 0 else 0
                if not answers[event.key].has_grammar:
                    self.num_drafted += last.usage.num_drafted
                    self.num_accepted += last.usage.num_accepted


@dataclass
class AnswerInProgress:
    """An answer in progress. The output of an embedding has its bits as text."""

    answer: AnswerBuilder
    has_grammar: bool  # of the request
    embedding: tuple[float, ...] | None = None  # if requested

    def output(self) -> CompletionOutput:
        output = self.answer.output()
        if self.embedding is None:
            return output
        return replace(output, text=EMBEDDING + struct.pack(f"<{len(self.embedding)}f", *self.embedding).hex())


def continued(request: Request, answers: Answers, cut: int) -> Request:
    """The request, begun with the first tokens of its answers."""
    if request.needs_every_token:
        return request
    outputs = [answers[SampleKey(request.id, number)].token_ids for number in range(request.params.n)]
    cuts = [min(cut + number, len(tokens) - 1) for number, tokens in enumerate(outputs)]
    return replace(request, begun=tuple(tokens[:end] for tokens, end in zip(outputs, cuts, strict=True)))


def feed_begun(builder: AnswerBuilder, key: SampleKey, answer: CompletionOutput, count: int) -> None:
    """Give an answer its first tokens, with their logprobs, as if they had been sampled."""
    for place, token in enumerate(answer.token_ids[:count]):
        logprobs = () if answer.logprobs is None else (as_token_logprobs(answer.logprobs[place]),)
        builder.feed(Event(key, (token,), logprobs))


def usable_grammars(grammars: Grammars) -> dict[str, str]:
    """Grammars by name; none if the model's tokens cannot express them, or no token ends an answer."""
    named = {"schema": json_grammar(SCHEMA), "regex": regex_grammar(DATE)}
    try:
        for grammar in named.values():
            grammars.start(grammar)
    except (GrammarError, IndexError):
        return {}
    return named


def _num_tokens(request: Request) -> int:
    return len(request.prompt) + request.params.n * (request.params.max_tokens or 1)


def _unmet(condition: Condition, num_preemptions: int, num_cached: int, num_drafted: int) -> tuple[str, ...]:
    expected = {
        "preemption": (condition.preempt_every is not None or condition.memory == 0, num_preemptions),
        "cache hit": (condition.caching, num_cached),
        "draft": (condition.drafter is not None and not condition.governed, num_drafted),
    }
    return tuple(name for name, (is_expected, count) in expected.items() if is_expected and not count)


def make_layout(windows: Sequence[int], condition: Condition, requests: Sequence[Request], longest: int) -> KvLayout:
    """KV blocks for the fraction `condition.memory` of all running requests, and at least for the largest request."""
    probe = KvLayout(condition.block_size, tuple(KvGroup(1, window) for window in windows))

    def price(request: Request) -> tuple[int, ...]:
        num_new = request.params.max_tokens or 1
        return probe.price(len(request.prompt), num_new, request.params.n, condition.max_chunk)

    largest = [max(prices) for prices in zip(*map(price, requests), strict=True)]
    full, share = probe.price(longest, 1, 1, condition.max_chunk), condition.memory * condition.max_running
    counts = [max(minimum, round(share * blocks)) for minimum, blocks in zip(largest, full, strict=True)]
    return KvLayout(
        condition.block_size, tuple(KvGroup(count, window) for count, window in zip(counts, windows, strict=True))
    )


def make_state_layout(condition: Condition) -> StateLayout:
    """Slots for `condition.memory` of a few snapshots for each request that can run at once."""
    promised = 2 * condition.max_running
    snapshots = round(condition.memory * 4 * condition.max_running)
    return StateLayout(promised + max(2, snapshots), promised, 2 * condition.block_size)


def scheduling(condition: Condition, longest: int) -> SchedulerConfig:
    if condition.timed:
        return SchedulerConfig(longest, condition.max_running, max_chunk=condition.max_chunk)
    return SchedulerConfig(
        longest, condition.max_running, max_chunk=condition.max_chunk, first_chunk=condition.max_chunk,
        gap_ms=NEVER_MS, crowd_ms=NEVER_MS, max_gap_ratio=NEVER_MS, max_step_tokens=1024,
    )  # fmt: skip
