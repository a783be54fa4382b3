"""Our engine's answers to real prompts, with speculation or without, and how many drafts were accepted."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import count

from surefoot.api import LLM, SamplingParams
from surefoot.bench.speculate.prompts import chat_prompts, edit_prompts
from surefoot.bench.speculate.versus import Answered, PromptLoad
from surefoot.core import Request
from surefoot.engine import Event, Usage
from surefoot.speculate import Speculator


@dataclass(frozen=True)
class Used:
    """Counts of one run."""

    num_tokens: int  # after the first token of each answer
    num_passes: int  # that these tokens took
    num_drafted: int
    num_accepted: int

    @classmethod
    def of(cls, one: Usage) -> "Used":
        return cls(one.num_generated - 1, one.num_passes - 1, one.num_drafted, one.num_accepted)


@dataclass(frozen=True)
class _Answers:
    """Times and counts of one run."""

    seconds: float
    after_first_s: float  # sum over answers, from the first token to the end
    used: Used


class Answerer:
    """Answers real prompts greedily, and checks that every run gives the same answers."""

    def __init__(self, llm: LLM, num_new: int) -> None:
        self._llm, self._num_new, self._ids, self._runs = llm, num_new, count(), count()
        self._prompts = {"edit": self._encoded(edit_prompts()), "chat": self._encoded(chat_prompts())}
        self.used: dict[str, list[Used]] = {}  # by case, run by run
        self._answers: dict[tuple[int, ...], list[int]] = {}  # by prompt

    def _encoded(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        most = self._llm.max_context - self._num_new
        return [tuple(self._llm.encode_question(text)[:most]) for text in texts]

    def run(self, kind: str, num_requests: int, num_alone: int, speculator: Speculator, is_on: bool) -> float:
        """Seconds for all prompts of the kind with `num_requests` in flight (with one: for `num_alone` prompts).

        Prompts are found in the prefix cache; answers of other runs are not.
        """
        load, speculator.is_paused = self.load(kind, num_requests, num_alone), not is_on
        answers = self._answer(load.prompts, num_requests)
        if is_on:
            self.used.setdefault(f"{kind} {num_requests}", []).append(answers.used)
        return answers.seconds

    def load(self, kind: str, num_requests: int, num_alone: int) -> PromptLoad:
        prompts = self._prompts[kind] if num_requests > 1 else self._prompts[kind][:num_alone]
        return PromptLoad(kind, num_requests, tuple(prompts), self._num_new)

    def answer(self, load: PromptLoad) -> Answered:
        """Answers a load in the same way as a peer."""
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
        """Adds a request whose prompt is public, so that every run finds it in the cache."""
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
        return _Answers(seconds, going.after_first_s, total_used(Used.of(one) for one in going.ended))


@dataclass
class _Going:
    """Answers in progress and those that have ended, by request."""

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


def total_used(parts: Iterable[Used]) -> Used:
    columns = zip(*(astuple(one) for one in parts), strict=True)
    return Used(*(sum(column) for column in columns))
