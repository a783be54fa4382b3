"""Users in simulated time: the real scheduler plans steps, and the cost model says how long each takes."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from surefoot.core import Output, Request, SampleKey, SamplingParams, StepCost, StepPlan, StepResult
from surefoot.kv import KvLayout, KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.speed.step_time import ChunkLoad, PredictedSteps

TOKEN = 0  # that every answer consists of
SHARED_TOKEN = 1  # that prompts share at their beginning


@dataclass(frozen=True)
class UserLoad:
    """What users ask for."""

    num_users: int
    prompt_tokens: int
    answer_tokens: int
    shared_tokens: int = 0  # at the beginning of all prompts
    pause_s: float = 0.0  # between an answer and the user's next question, on average
    num_answers: int = 160  # until the simulation ends; every user has at least one
    asks_again: bool = True  # False: each user has one question
    seed: int = 0


@dataclass(frozen=True)
class ServingCost:
    """What a server takes besides the predicted steps. All cores compute, so that steps take longer by it."""

    token_s: float = 0.0  # for each token that it sends
    slowdown: float = 1.0  # of steps, over their prediction


ENGINE_ALONE = ServingCost()


@dataclass(frozen=True)
class AnswerTimes:
    """One answer."""

    first_token_s: float  # from the question
    tokens_per_second: float  # after the first token


@dataclass
class LoadFigures:
    """What came of a load."""

    answers: list[AnswerTimes] = field(default_factory=list)
    seconds: float = 0.0
    num_tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of all users together."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def first_token_s(self, share: float) -> float:
        """Time to first token that this share of answers does not exceed."""
        return _quantile([answer.first_token_s for answer in self.answers], share)

    def speed(self, share: float) -> float:
        """Tokens per second that this share of answers reaches."""
        return _quantile([answer.tokens_per_second for answer in self.answers], 1 - share)


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class CostedRunner:
    """Takes the place of a model: a step takes as long as the cost model says, and every token is the same."""

    def __init__(self, times: PredictedSteps, serving: ServingCost = ENGINE_ALONE) -> None:
        self._times = times
        self._serving = serving

    def execute(self, plan: StepPlan) -> StepResult:
        chunks = [ChunkLoad(len(chunk.tokens), chunk.start) for chunk in plan.chunks]
        num_logits = sum(chunk.num_logits for chunk in plan.chunks)
        outputs = [
            Output(SampleKey(chunk.key.request, sample), (TOKEN,)) for chunk in plan.chunks for sample in chunk.samples
        ]
        seconds = self._serving.slowdown * self._times.seconds(chunks, num_logits)
        return StepResult(outputs, 1000 * (seconds + self._serving.token_s * len(outputs)))


def _teach(cost: StepCost, times: PredictedSteps, max_tokens: int) -> None:
    """Tells a scheduler how long steps take, as if it had served for a while."""
    num_tokens = 1
    while num_tokens <= max_tokens:
        cost.observe(num_tokens, 1000 * times.seconds([ChunkLoad(num_tokens, 0)], 1))
        num_tokens *= 2


@dataclass
class _Asked:
    """A question that waits for its answer."""

    user: int
    at: float
    first_at: float = 0.0


class LoadSimulation:
    """Each user asks, waits for the answer, pauses and asks again."""

    def __init__(
        self,
        times: PredictedSteps,
        config: SchedulerConfig,
        layout: KvLayout,
        load: UserLoad,
        serving: ServingCost = ENGINE_ALONE,
    ) -> None:
        self._load = load
        self._runner = CostedRunner(times, serving)
        self._scheduler = Scheduler(config, KvManager(layout))
        _teach(self._scheduler.cost, times, config.max_chunk)
        self._rng = random.Random(load.seed)
        self._ids, self._texts = count(), count(2)
        self._asked: dict[str, _Asked] = {}
        self._due: list[tuple[float, int]] = []  # time, user
        self._now = 0.0
        self.figures = LoadFigures()

    def run(self, is_enough: Callable[[LoadFigures], bool] = lambda figures: False) -> LoadFigures:
        """is_enough: asked after each answer; ends the simulation early."""
        for user in range(self._load.num_users):
            heapq.heappush(self._due, (self._rng.uniform(0, self._load.pause_s), user))
        load = self._load
        wanted = max(load.num_answers, load.num_users) if load.asks_again else load.num_users
        num_checked = 0
        while len(self.figures.answers) < wanted:
            if len(self.figures.answers) > num_checked and is_enough(self.figures):
                break
            num_checked = len(self.figures.answers)
            if not self._scheduler.has_work:
                self._now = max(self._now, self._due[0][0])
            while self._due and self._due[0][0] <= self._now:
                _, user = heapq.heappop(self._due)
                self._ask(user)
            self._step()
        self.figures.seconds = self._now
        return self.figures

    def _ask(self, user: int) -> None:
        load, name = self._load, f"{next(self._ids)}"
        shared = (SHARED_TOKEN,) * load.shared_tokens
        prompt = shared + (next(self._texts),) * (load.prompt_tokens - load.shared_tokens)
        params = SamplingParams(max_tokens=load.answer_tokens, ignore_eos=True, seed=0)
        self._scheduler.add(Request(name, prompt, params, user=f"{user}"))
        self._asked[name] = _Asked(user, self._now)

    def _step(self) -> None:
        plan = self._scheduler.schedule(self._now)
        if not plan.chunks:
            return
        result = self._runner.execute(plan)
        self._now += result.elapsed_ms / 1000
        for delta in self._scheduler.commit(result):
            asked = self._asked[delta.key.request]
            self.figures.num_tokens += len(delta.tokens)
            asked.first_at = asked.first_at or self._now
            if delta.reason is not None:
                self._answered(self._asked.pop(delta.key.request))

    def _answered(self, asked: _Asked) -> None:
        seconds = self._now - asked.first_at
        speed = (self._load.answer_tokens - 1) / seconds if seconds else float("inf")
        self.figures.answers.append(AnswerTimes(asked.first_at - asked.at, speed))
        if not self._load.asks_again:
            return
        pause = self._rng.expovariate(1 / self._load.pause_s) if self._load.pause_s else 0.0
        heapq.heappush(self._due, (self._now + pause, asked.user))
