"""Runs real prompts through our engine, with or without speculation, and counts accepted drafts."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import count

from benchmarks.speculate.prompts import chat_prompts, edit_prompts
from benchmarks.speculate.versus import Answered, PromptLoad
from surefoot.api import LLM, SamplingParams
from surefoot.core import Request
from surefoot.engine import Event, Usage
from surefoot.speculate import Speculator


@dataclass(frozen=True)
class Used:
    """Token counts of a run."""

    num_tokens: int  # without the first token of each answer
    num_passes: int  # passes that generated these tokens
    num_drafted: int
    num_accepted: int

    @classmethod
    def of(cls, usage: Usage) -> "Used":
        return cls(usage.num_generated - 1, usage.num_passes - 1, usage.num_drafted, usage.num_accepted)


@dataclass(frozen=True)
class _Answers:
    """Times and counts of a run."""

    seconds: float
    after_first_s: float  # seconds from first token to end, summed over answers
    used: Used


class Answerer:
    """Answers real prompts greedily, and checks that every run gives the same answers."""

    def __init__(self, llm: LLM, num_new: int, num_alone: int, num_turns: int) -> None:
        """num_alone: prompts of a case with one request at a time. num_turns: of others, prompts for each place."""
        self._llm, self._num_new, self._ids, self._runs = llm, num_new, count(), count()
        self._num_alone, self._num_turns = num_alone, num_turns
        self._prompts = {"edit": self._encoded(edit_prompts()), "chat": self._encoded(chat_prompts())}
        self.used: dict[str, list[Used]] = {}  # by case, run by run
        self._answers: dict[tuple[int, ...], list[int]] = {}  # by prompt

    def _encoded(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        max_prompt = self._llm.max_context - self._num_new
        return [tuple(self._llm.encode_question(text)[:max_prompt]) for text in texts]

    def run(self, kind: str, num_requests: int, speculator: Speculator, is_on: bool) -> float:
        """Seconds for the case's prompts with `num_requests` in flight.

        Prompts are in the prefix cache; answers of other runs are not.
        """
        load, speculator.is_paused = self.load(kind, num_requests), not is_on
        answers = self._answer(load.prompts, num_requests)
        if is_on:
            self.used.setdefault(f"{kind} {num_requests}", []).append(answers.used)
        return answers.seconds

    def load(self, kind: str, num_requests: int) -> PromptLoad:
        num_prompts = self._num_alone if num_requests == 1 else self._num_turns * num_requests
        return PromptLoad(kind, num_requests, tuple(self._prompts[kind][:num_prompts]), self._num_new)

    def answer(self, load: PromptLoad) -> Answered:
        """Answers a load, timed in the same way as a peer's."""
        answers = self._answer(load.prompts, load.at_once)
        if load.at_once > 1:
            return Answered(answers.seconds, answers.used.num_tokens + len(load.prompts))
        return Answered(answers.after_first_s, answers.used.num_tokens)

    def _cache(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Brings the prompts into the prefix cache."""
        for prompt in prompts:
            self._add(prompt, "reading", 1)
        while self._llm.engine.has_work:
            self._llm.engine.step()

    def _add(self, prompt: tuple[int, ...], namespace: str, num_new: int) -> str:
        """Adds a request whose prompt is public, so that every run finds it in the cache."""
        params, number = SamplingParams(temperature=0, max_tokens=num_new, seed=0), f"bench {next(self._ids)}"
        ends = self._llm.tokenizer.ids.ends
        self._llm.engine.add(
            Request(number, prompt, params, namespace=namespace, num_public_tokens=len(prompt), eos_token_ids=ends)
        )
        return number

    def _answer(self, prompts: Sequence[tuple[int, ...]], at_once: int) -> _Answers:
        self._cache(prompts)
        engine, queue, namespace, run = self._llm.engine, deque(prompts), f"run {next(self._runs)}", _Run()
        start = time.perf_counter()
        while queue or engine.has_work:
            while queue and run.num_running < at_once:
                prompt = queue.popleft()
                run.prompts[self._add(prompt, namespace, self._num_new)] = prompt
            for event in engine.step():
                run.take(event, time.perf_counter())
        seconds = time.perf_counter() - start
        for number, prompt in run.prompts.items():
            if self._answers.setdefault(prompt, run.texts[number]) != run.texts[number]:
                raise RuntimeError("speculation changed an answer, which it never should: please report this")
        return _Answers(seconds, run.after_first_s, total_used(map(Used.of, run.usages)))


@dataclass
class _Run:
    """The answers of a run, by request id."""

    prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    texts: dict[str, list[int]] = field(default_factory=dict)  # tokens so far
    firsts: dict[str, float] = field(default_factory=dict)  # time of the first token
    usages: list[Usage] = field(default_factory=list)  # of answers that have ended
    after_first_s: float = 0.0  # seconds from first token to end, summed over answers that have ended

    @property
    def num_running(self) -> int:
        return len(self.prompts) - len(self.usages)

    def take(self, event: Event, now: float) -> None:
        number = event.key.request
        self.texts.setdefault(number, []).extend(event.tokens)
        first = self.firsts.setdefault(number, now)
        if event.usage is not None:
            self.usages.append(event.usage)
            self.after_first_s += now - first


def total_used(runs: Iterable[Used]) -> Used:
    columns = zip(*map(astuple, runs), strict=True)
    return Used(*(sum(column) for column in columns))
