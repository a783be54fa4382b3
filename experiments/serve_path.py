"""What do Ray Serve's proxy and handles cost beside our gateway? `python -m experiments.serve_path MODEL.gguf [ROUNDS]`

Three ways to the same application: a server alone; our gateway in front of that server; Serve's proxy in front of an
actor that holds application and engine, so that no second HTTP connection lies behind the handle. They take turns, and
the engine that has no turn is idle. Needs the extra `fleet`.
"""

import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray import serve
from starlette.types import ASGIApp

from benchmarks.fleet.real import running_fleet
from surefoot import LLM
from surefoot.api.async_llm import SWITCH_S, AsyncLLM
from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.http_load import Endpoint, closed_loop
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.server_process import HOST, MODEL_NAME, free_port
from surefoot.bench.harness.workloads import Task, ids
from surefoot.server.app import make_app
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

MAX_RUNNING, MAX_CONTEXT, VOCAB = 32, 1024, 32_000
NUM_FIRST, NUM_NEW = 40, 64  # first tokens of a round; tokens of each of the 32 streams


def build_app(model: str) -> ASGIApp:
    """The application of `surefoot serve`, with its engine. Runs in Serve's actor."""
    sys.setswitchinterval(SWITCH_S)
    llm = LLM(model, max_running=MAX_RUNNING, max_context=MAX_CONTEXT)
    return make_app(Service(AsyncLLM(llm), ServerSettings(model_name=MODEL_NAME), "measured"), None, None)


@contextmanager
def served(model: str) -> Iterator[Endpoint]:
    """Serve's proxy in front of one actor."""

    def build() -> ASGIApp:  # Serve takes a function for a builder, and a partial for an application
        return build_app(model)

    port = free_port()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": HOST, "port": port})
    limits = {"max_ongoing_requests": 2 * MAX_RUNNING, "ray_actor_options": {"num_cpus": 1}}
    serve.run(serve.deployment(serve.ingress(build)(), **limits).bind())
    try:
        yield Endpoint(HOST, port, MODEL_NAME)
    finally:
        serve.shutdown()
        ray.shutdown()


def tasks(count: int, length: int, num_new: int, seed: int) -> list[Task]:
    """Of prompts that no way has seen."""
    rng = random.Random(seed)
    return [Task(ids(rng, length, VOCAB), num_new) for _ in range(count)]


def first_tokens_ms(endpoint: Endpoint, seed: int) -> list[float]:
    """One user, one request after the other."""
    done = closed_loop(endpoint, tasks(NUM_FIRST, 24, 4, seed), 1).done
    return [1e3 * outcome.ttft for outcome in done if outcome.times]


def tokens_per_s(endpoint: Endpoint, seed: int) -> float:
    load = closed_loop(endpoint, tasks(MAX_RUNNING, 16, NUM_NEW, seed), MAX_RUNNING)
    if load.errors:
        raise RuntimeError(load.errors[0])
    return load.tokens_per_second


def summary(first_ms: Sequence[float], rates: Sequence[float]) -> dict[str, Any]:
    return {
        "ttft_ms_p50": statistics.median(first_ms),
        "ttft_ms_p99": percentile(list(first_ms), 0.99),
        "tokens_per_s": statistics.median(rates),
        "rounds": list(rates),
    }


def main(model: str, rounds: int = 5) -> None:
    run = RunFacts()
    options = ("--max-running", str(MAX_RUNNING), "--max-context", str(MAX_CONTEXT))
    with served(model) as proxy, running_fleet(model, 1, *options) as fleet:
        ways = {"server": fleet.servers[0].endpoint(), "gateway": fleet.gateway.endpoint(), "serve": proxy}
        first: dict[str, list[float]] = {name: [] for name in ways}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for name, endpoint in ways.items():  # what is done once, at a first request
            first_tokens_ms(endpoint, -1)
            tokens_per_s(endpoint, -2)
            print(f"{name} is warm", file=sys.stderr)
        for number in range(rounds):
            order = list(ways) if number % 2 else list(reversed(ways))
            for name in order:
                first[name] += first_tokens_ms(ways[name], 3 * number + list(ways).index(name))
            for name in order:
                rates[name].append(tokens_per_s(ways[name], 1000 + 3 * number + list(ways).index(name)))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print(json.dumps({name: summary(first[name], rates[name]) for name in ways} | {"run": run.facts()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
