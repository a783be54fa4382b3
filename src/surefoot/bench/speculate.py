"""`surefoot bench speculate`: the same requests with speculation and without, in turns, in one process."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from surefoot.api import LLM, SamplingParams
from surefoot.bench.facts import progress
from surefoot.bench.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.limits import gauges
from surefoot.bench.loaded import load_model
from surefoot.bench.model_results import ModelResults
from surefoot.bench.peers.serving import NO_PEER, PEERS, Room, ServingPeer
from surefoot.bench.speculate_cost import measure_costs
from surefoot.bench.speculate_tasks import NUM_CHATS, chat_prompts, edit_prompts
from surefoot.bench.speculate_versus import (
    LOADS,
    NAMES,
    Answered,
    Load,
    SpeculateVersus,
    run_speculate_versus,
    speculate_versus_questions,
)
from surefoot.bench.timing import Budget, Case, Interleaver, ratios
from surefoot.core import Request
from surefoot.engine import Event, Usage
from surefoot.speculate import Speculator

Say = Callable[[str], None]

MIB = 1 << 20
CASES = (("edit", 1), ("edit", 8), ("chat", 1), ("chat", 32))
CONTEXT = 2048
PEER_STREAMS = 16  # one for each prompt: a server that keeps prompts by slots forgets none
COST_SHARE = 0.15  # of the time, for what drafts cost


@dataclass(frozen=True)
class SpeculateSettings:
    """seconds: for the cases, loading not counted; peer_seconds: for what is run beside peers, starting them not
    counted. num_new: tokens of an answer. num_alone: answers one by one. cases: kinds and how many at once."""

    seconds: float = 600
    rounds: int = 5
    num_new: int = 192
    num_alone: int = 4
    peer_seconds: float = 2400
    peer_rounds: int = 2
    footprint_bytes: int = 512 * MIB
    cases: Sequence[tuple[str, int]] = CASES


QUICK = SpeculateSettings(seconds=38, rounds=2, num_new=40, num_alone=2, peer_seconds=120, peer_rounds=1)


@dataclass(frozen=True)
class Used:
    """Of one run: tokens after each answer's first, the passes that these took, drafts."""

    num_tokens: int
    num_passes: int
    num_drafted: int
    num_accepted: int

    @classmethod
    def of(cls, one: Usage) -> "Used":
        return cls(one.num_generated - 1, one.num_passes - 1, one.num_drafted, one.num_accepted)


@dataclass(frozen=True)
class _Answers:
    """after_first_s: from each one's first token to its end, summed."""

    seconds: float
    after_first_s: float
    used: Used


class Crowd:
    """Answers to real prompts: what the model says, greedily, with speculation or without."""

    def __init__(self, llm: LLM, num_new: int) -> None:
        self._llm, self._num_new, self._ids, self._runs = llm, num_new, count(), count()
        self._prompts = {"edit": self._encoded(edit_prompts()), "chat": self._encoded(chat_prompts())}
        self.used: dict[str, list[Used]] = {}  # by case, run by run
        self._answers: dict[tuple[int, ...], list[int]] = {}  # by prompt

    def _encoded(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        most = self._llm.max_context - self._num_new
        return [tuple(self._llm.encode_question(text)[:most]) for text in texts]

    def run(self, kind: str, num_requests: int, num_alone: int, speculator: Speculator, is_on: bool) -> float:
        """Seconds for all prompts of the kind (alone: some), so many at a time: where one ends, the next begins.

        Prompts are found in the cache, answers of other runs are not.
        """
        load, speculator.is_paused = self.load(kind, num_requests, num_alone), not is_on
        answers = self._answer(load.prompts, num_requests)
        if is_on:
            self.used.setdefault(f"{kind} {num_requests}", []).append(answers.used)
        return answers.seconds

    def load(self, kind: str, num_requests: int, num_alone: int) -> Load:
        prompts = self._prompts[kind] if num_requests > 1 else self._prompts[kind][:num_alone]
        return Load(kind, num_requests, tuple(prompts), self._num_new)

    def answer(self, load: Load) -> Answered:
        """As a peer is asked to."""
        answers = self._answer(load.prompts, load.at_once)
        if load.at_once > 1:
            return Answered(answers.seconds, answers.used.num_tokens + len(load.prompts))
        return Answered(answers.after_first_s, answers.used.num_tokens)

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> None:
        for prompt in prompts:
            self._add(prompt, "reading", 1)
        while self._llm.engine.has_work:
            self._llm.engine.step()

    def _add(self, prompt: tuple[int, ...], namespace: str, num_new: int) -> str:
        """Prompts count as public, so that every run finds them in the cache."""
        params, number = SamplingParams(temperature=0, max_tokens=num_new, seed=0), f"bench {next(self._ids)}"
        ends = self._llm.tokenizer.ids.ends
        self._llm.engine.add(
            Request(number, prompt, params, namespace=namespace, num_public_tokens=len(prompt), eos_token_ids=ends)
        )
        return number

    def _answer(self, prompts: Sequence[tuple[int, ...]], at_once: int) -> _Answers:
        self._read(prompts)
        engine, queue, namespace, going = self._llm.engine, deque(prompts), f"run {next(self._runs)}", _Going()
        start = time.perf_counter()
        while queue or engine.has_work:
            while queue and going.count < at_once:
                prompt = queue.popleft()
                going.prompts[self._add(prompt, namespace, self._num_new)] = prompt
            for event in engine.step():
                going.take(event, time.perf_counter())
        seconds = time.perf_counter() - start
        for number, prompt in going.prompts.items():
            if self._answers.setdefault(prompt, going.texts[number]) != going.texts[number]:
                raise RuntimeError("speculation changed an answer, which it never should: please report this")
        return _Answers(seconds, going.after_first_s, _total(Used.of(one) for one in going.ended))


@dataclass
class _Going:
    """Answers under way and those that have ended, by request."""

    prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    texts: dict[str, list[int]] = field(default_factory=dict)
    firsts: dict[str, float] = field(default_factory=dict)
    ended: list[Usage] = field(default_factory=list)
    after_first_s: float = 0.0

    @property
    def count(self) -> int:
        return len(self.prompts) - len(self.ended)

    def take(self, event: Event, now: float) -> None:
        number = event.key.request
        self.texts.setdefault(number, []).extend(event.tokens)
        first = self.firsts.setdefault(number, now)
        if event.usage is not None:
            self.ended.append(event.usage)
            self.after_first_s += now - first


def _total(parts: Iterable[Used]) -> Used:
    columns = zip(*(astuple(one) for one in parts), strict=True)
    return Used(*(sum(column) for column in columns))


def run_speculate(
    model: str,
    settings: SpeculateSettings,
    variant: str | None,
    threads: int | None,
    speculate: str,
    peers: Sequence[ServingPeer],
    say: Say,
) -> ModelResults:
    """peers: each of them without speculation and with."""

    def load() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=CONTEXT, max_running=NUM_CHATS, speculate=speculate
        )

    loaded = load_model(model, load, say)
    llm = loaded.llm
    if llm.speculator is None:
        raise ValueError("there is nothing to measure without speculation: give another --speculate")
    say("measuring what drafts cost")
    costs = measure_costs(llm, COST_SHARE * settings.seconds)
    llm.engine.reset()
    crowd = Crowd(llm, settings.num_new)
    cases = list(_cases(crowd, settings, llm.speculator))
    budget = Budget(settings.seconds - loaded.seconds, rounds=settings.rounds)
    limits = gauges(llm.backend, settings.footprint_bytes)
    measurements = Interleaver(limits, budget, report=lambda *at: say(progress(*at))).run(cases)
    described = loaded.described | {
        "speculate": speculate,
        "costs": [asdict(cost) for cost in costs],
        "drafts": {name: asdict(_total(runs)) for name, runs in crowd.used.items()},
    }
    versus = None
    if peers:
        llm.speculator.is_paused = False
        versus = _versus(Path(model), crowd, llm, peers, settings, say)
    absent = versus.peers.absent if versus else dict.fromkeys(PEERS, NO_PEER)
    named, beside = (versus.peers.described, versus.measurements) if versus else ({}, {})
    questions = [*_questions(measurements, crowd), *speculate_versus_questions(versus, absent)]
    figures = [question.figure() for question in questions]
    return ModelResults({**measurements, **beside}, figures, described, named, absent, loaded.run_facts())


def _versus(
    model: Path, crowd: Crowd, llm: LLM, peers: Sequence[ServingPeer], settings: SpeculateSettings, say: Say
) -> SpeculateVersus:
    loads = [crowd.load(kind, at_once, settings.num_alone) for kind, at_once in LOADS]
    room = Room(llm.backend.threads, PEER_STREAMS, CONTEXT, PEER_STREAMS * CONTEXT)
    budget = Budget(settings.peer_seconds, settings.peer_rounds)
    return run_speculate_versus(model, crowd.answer, loads, peers, room, budget, say)


def _cases(crowd: Crowd, settings: SpeculateSettings, speculator: Speculator) -> Iterator[Case]:
    for kind, num_requests in settings.cases:
        for way in ("off", "on"):
            run = partial(crowd.run, kind, num_requests, settings.num_alone, speculator, way == "on")
            yield Case(f"{kind}/{num_requests}/{way}", kind, run, labels={"requests": num_requests, "way": way})


def _questions(found: Measurements, crowd: Crowd) -> Iterator[Question]:
    def speedup(kind: str, num_requests: int) -> float:
        ways = (select(found, kind, requests=num_requests, way=way) for way in ("off", "on"))
        return median(ratios(*ways))

    def tokens_per_pass() -> float:
        runs = crowd.used.get("edit 1", [])
        if not runs:
            raise MissingError("not measured within the time: give more with --seconds")
        used = _total(runs[1:] or runs)  # in the first it learnt what steps cost
        return used.num_tokens / used.num_passes

    targets = {("edit", 1): 3.0, ("edit", 8): 1.5, ("chat", 1): 0.98, ("chat", 32): 0.98}
    for kind, num_requests in CASES:
        meaning = f"{NAMES[kind]}, {num_requests} at once: speed over speculation off"
        target = Target(targets[kind, num_requests])
        yield Question(f"speedup_{kind}_{num_requests}", meaning, target, partial(speedup, kind, num_requests))
    yield Question("tokens_per_pass_edit", "edits, one by one: tokens a pass", None, tokens_per_pass)
