"""Plans how many users a service carries, then serves as many, and half as many more.

The plan is made before the server starts. Each user asks over HTTP, waits for the answer,
pauses and asks again, as in the simulation.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import count

import uvloop

from surefoot.api.opening import open_model
from surefoot.bench.harness.figures import Figure, Target
from surefoot.bench.harness.http_load import Endpoint, Outcome, ask
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.workloads import Task, ids
from surefoot.ops import Backend
from surefoot.plan.machines import measure_machine
from surefoot.plan.planning import SERVED_SHARE, ModelPlanner, ServiceLevel
from surefoot.plan.subject import plan_model

MORE = 1.5  # times the planned number of users, who should not all be served
# A service that a user alone gets with room to spare, on any machine.
FIRST_TOKEN_TIMES, SPEED_SHARE = 8.0, 1 / 4
WARM_TASKS = 4


@dataclass(frozen=True)
class UsersSettings:
    """What users ask for, and for how long."""

    prompt_tokens: int = 256
    answer_tokens: int = 64
    pause_steps: int = 300  # that one user alone would take, between an answer and the next question
    num_answers: int = 160  # at least, of each number of users
    rates_seconds: float = 20.0  # to measure the machine


QUICK = UsersSettings(prompt_tokens=128, answer_tokens=32, pause_steps=100, num_answers=40, rates_seconds=6.0)


@dataclass(frozen=True)
class ServedUsers:
    """A number of users that were served."""

    num_users: int
    num_answers: int
    share: float  # of answers that met the service
    first_token_p95_s: float
    tokens_per_second_p5: float  # of an answer
    predicted_share: float  # of answers that the simulation meets


def run_users(model: str, settings: UsersSettings, threads: int | None, say: Say) -> BenchResults:
    sized = plan_model(open_model(model))
    say("measuring the machine")
    measured = measure_machine(sized, None, threads, settings.rates_seconds)
    asked = ServiceLevel(settings.prompt_tokens, settings.answer_tokens)
    service = fitting_service(ModelPlanner(sized, measured, asked), settings.pause_steps)
    planner = ModelPlanner(sized, measured, service)
    planned = planner.num_users()
    run = RunFacts()
    counts = (planned, max(planned + 1, round(MORE * planned)))
    served = _serve(model, planner, settings, counts, threads, say)
    with closing(Backend(threads=threads)) as backend:
        facts = run.facts(backend)
    described = {
        "path": sized.name, "service": asdict(service), "planned_users": planned,
        "served": [asdict(some) for some in served],
    }  # fmt: skip
    return BenchResults({}, user_figures(planned, served), described, {}, {}, facts)


def fitting_service(planner: ModelPlanner, pause_steps: int) -> ServiceLevel:
    """What a user alone gets, with room to spare."""
    alone = planner.one_user()
    return replace(
        planner.service,
        first_token_s=FIRST_TOKEN_TIMES * alone.first_token_s,
        tokens_per_second=SPEED_SHARE * alone.tokens_per_second,
        pause_s=pause_steps / alone.tokens_per_second,
    )


def user_figures(planned: int, served: Sequence[ServedUsers]) -> list[Figure]:
    share, share_of_more = (some.share for some in served)
    return [
        Figure("planned_users", "users that the plan says are carried", planned),
        Figure("served_share", "answers in time with as many users", share, Target(SERVED_SHARE)),
        Figure(
            "served_share_of_more", "answers in time with 1.5 times as many", share_of_more,
            Target(SERVED_SHARE, at_least=False),
        ),
    ]  # fmt: skip


def _serve(
    model: str,
    planner: ModelPlanner,
    settings: UsersSettings,
    counts: Sequence[int],
    threads: int | None,
    say: Say,
) -> list[ServedUsers]:
    port, options = free_port(), ("--speculate", "off", *(("--threads", f"{threads}") if threads else ()))
    with running(own_launch(model, port, *options), port) as server:
        load = UserLoop(server.endpoint(), planner.service, planner.model.config.vocab_size)
        say("warming up")
        load.run(WARM_TASKS, WARM_TASKS, pause_s=0.0)
        served = []
        for num_users in counts:
            say(f"{num_users} users")
            num_answers = max(settings.num_answers, 2 * num_users)
            outcomes = load.run(num_users, num_answers, planner.service.pause_s)
            served.append(_served(planner, num_users, outcomes))
    return served


def _served(planner: ModelPlanner, num_users: int, outcomes: Sequence[Outcome]) -> ServedUsers:
    service, simulated = planner.service, planner.simulate(num_users)
    firsts, speeds = [outcome.ttft for outcome in outcomes], [speed(outcome) for outcome in outcomes]
    num_met = sum(
        outcome.error is None and first <= service.first_token_s and speed >= service.tokens_per_second
        for outcome, first, speed in zip(outcomes, firsts, speeds, strict=True)
    )
    last = round(SERVED_SHARE * (len(outcomes) - 1))
    missed = service.num_missed(simulated) / len(simulated.answers)
    return ServedUsers(
        num_users, len(outcomes), num_met / len(outcomes), sorted(firsts)[last], sorted(speeds)[-1 - last], 1 - missed
    )


def speed(outcome: Outcome) -> float:
    """Tokens per second after the first token."""
    seconds = outcome.times[-1] - outcome.times[0] if outcome.times else 0.0
    return (outcome.num_tokens - 1) / seconds if seconds else 0.0


class UserLoop:
    """Users of a server: each asks, waits for the answer, pauses and asks again."""

    def __init__(self, endpoint: Endpoint, service: ServiceLevel, vocab_size: int) -> None:
        self._endpoint = endpoint
        self._service = service
        self._vocab_size = vocab_size
        self._seeds = count(1)

    def run(self, num_users: int, num_answers: int, pause_s: float) -> list[Outcome]:
        return uvloop.run(self._drive(num_users, num_answers, pause_s))

    async def _drive(self, num_users: int, num_answers: int, pause_s: float) -> list[Outcome]:
        begin, outcomes, left = time.perf_counter(), list[Outcome](), count(num_answers, -1)

        async def user(rng: random.Random) -> None:
            await asyncio.sleep(rng.uniform(0, pause_s))
            while next(left) > 0:
                outcomes.append(await ask(self._endpoint, self._task(rng), begin))
                await asyncio.sleep(rng.expovariate(1 / pause_s) if pause_s else 0.0)

        await asyncio.gather(*(user(random.Random(next(self._seeds))) for _ in range(num_users)))
        return outcomes

    def _task(self, rng: random.Random) -> Task:
        return Task(ids(rng, self._service.prompt_tokens, self._vocab_size), self._service.answer_tokens)
