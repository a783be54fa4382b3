"""What speculation gains where the acceptance of drafts is known: a drafter that is right with a set probability.

python -m experiments.ideal_drafts MODEL.gguf [USERS,... [ROUNDS]]

The drafter knows the answer, and changes each token of a draft with probability 1 - a. The depth is chosen as in
serving. Beside the speedup stands the best that any fixed depth could give: (1 - a^(k+1)) / (1 - a) tokens for the
measured cost of its rows. Prints one line of JSON for each number of users.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speculate.cost import Cost, measure_costs
from surefoot.api import LLM, SamplingParams
from surefoot.bench.harness.workloads import ids
from surefoot.core import Request, SampleKey
from surefoot.engine import Engine, make_engine
from surefoot.speculate import DepthController, DraftOffer, Speculator, TargetRow

ACCEPTANCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9)
PROMPT, NEW = 32, 160  # tokens
COST_S = 12.0  # for measuring the cost of rows, for each number of users


class IdealDrafter:
    """A Drafter that knows each answer."""

    def __init__(self, acceptance: float, answers: Mapping[str, Sequence[int]], vocab_size: int) -> None:
        self._acceptance, self._answers, self._vocab_size = acceptance, answers, vocab_size
        self._written: dict[SampleKey, int] = {}
        self._rng = random.Random(0)

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._written[key] = len(tokens) - len(request.prompt)

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        self._written[key] += len(tokens)

    def end(self, key: SampleKey) -> None:
        del self._written[key]

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [DraftOffer(min(max_depth, len(self._rest(key)))) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {key: tuple(map(self._guess, self._rest(key)[:depth])) for key, depth in depths.items()}

    def _rest(self, key: SampleKey) -> Sequence[int]:
        return self._answers[key.request][self._written[key] :]

    def _guess(self, token: int) -> int:
        is_right = self._rng.random() < self._acceptance
        return token if is_right else (token + 1) % self._vocab_size


@dataclass(frozen=True)
class Answered:
    seconds: float
    tokens: Mapping[str, Sequence[int]]


class Case:
    """An engine of its own over the model's memory, and its depth controller, which goes on learning."""

    def __init__(self, llm: LLM, num_users: int, speculator: Speculator | None) -> None:
        self._llm, self._num_users = llm, num_users
        self._engine: Engine = make_engine(llm.capacity, llm.runner, None, False, speculator)

    def answer(self) -> Answered:
        """Seconds from the step at which all have begun to the end."""
        rng, engine = random.Random(1), self._engine
        params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
        for number in range(self._num_users):
            engine.add(Request(f"user {number}", ids(rng, PROMPT, self._llm.config.vocab_size), params))
        tokens: dict[str, list[int]] = {}
        start = time.perf_counter()
        while engine.has_work:
            has_begun = len(tokens) == self._num_users
            for event in engine.step():
                tokens.setdefault(event.key.request, []).extend(event.tokens)
            if not has_begun:
                start = time.perf_counter()
        return Answered(time.perf_counter() - start, tokens)


def measure(llm: LLM, num_users: int, num_rounds: int) -> dict[str, object]:
    off = Case(llm, num_users, None)
    answers = off.answer().tokens
    shape = llm.capacity.scheduling.step_shape
    cases = {
        a: Case(llm, num_users, Speculator(IdealDrafter(a, answers, llm.config.vocab_size), DepthController(shape)))
        for a in ACCEPTANCES
    }
    for case in cases.values():
        case.answer()  # its controller learns the cost of rows
    times: dict[float, list[float]] = {a: [] for a in ACCEPTANCES}
    for _ in range(num_rounds):
        plain_s = off.answer().seconds
        for a, case in cases.items():
            found = case.answer()
            if found.tokens != answers:
                raise SystemExit(f"{num_users} users, acceptance {a}: the answers are not those without speculation")
            times[a].append(plain_s / found.seconds)
    costs = measure_costs(llm, [num_users], COST_S)
    return {
        "users": num_users,
        "cost_of_depth": {cost.depth: cost.ms / costs[0].ms for cost in costs},
        "speedup": {
            a: {"median": statistics.median(of), "least": min(of), "most": max(of), "best_depth": best(a, costs)}
            for a, of in times.items()
        },
    }


def best(acceptance: float, costs: Sequence[Cost]) -> float:
    """The speedup of the best depth whose rows were measured."""
    return max(sum(acceptance**k for k in range(c.depth + 1)) * costs[0].ms / c.ms for c in costs)


def main(model: str, users: str = "1,4,8,32", num_rounds: str = "3") -> None:
    counts = [int(count) for count in users.split(",")]
    llm = LLM(Path(model), max_context=1024, max_running=max(counts), speculate="lookup")
    for num_users in counts:
        print(json.dumps(measure(llm, num_users, int(num_rounds))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
