"""Real servers behind a real gateway: what the gateway adds, and whether answers survive the servers' deaths."""

import asyncio
import json
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from surefoot.bench.harness.http_load import closed_loop
from surefoot.bench.harness.server_process import HOST, SUREFOOT, Launch, RunningServer, free_port, own_launch, running
from surefoot.bench.harness.workloads import Task

KEY = "key of the fleet that is measured"
CHAT = "/v1/chat/completions"
RESTART_S = 120.0
NUM_WARM = 4  # requests before those that are timed
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1.0, "top_p": 0.9, "logprobs": True, "top_logprobs": 2},
    {"temperature": 1.2, "n": 2, "frequency_penalty": 0.5},
    {"temperature": 1.0, "repetition_penalty": 1.2, "stop": ["\n\n", "zq"]},
    {"temperature": 1.0, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
)


@dataclass
class RealRuns:
    """What was measured."""

    bare_ttft_s: list[float] = field(default_factory=list)
    fleet_ttft_s: list[float] = field(default_factory=list)
    bare_tokens_per_s: list[float] = field(default_factory=list)  # of one server
    fleet_tokens_per_s: list[float] = field(default_factory=list)  # of the same server behind the gateway
    gateway_us_per_token: list[float] = field(default_factory=list)  # processor time, with 32 streams
    num_streams: int = 0
    num_identical: int = 0
    num_kills: int = 0


@dataclass
class RunningFleet:
    """Servers, and a gateway in front of them."""

    launches: list[Launch]
    servers: list[RunningServer]
    gateway: RunningServer
    stack: ExitStack

    def kill(self, number: int) -> None:
        self.servers[number].process.send_signal(signal.SIGKILL)
        self.servers[number].process.wait()

    def restart(self, number: int) -> None:
        server = self.servers[number]
        self.servers[number] = self.stack.enter_context(running(self.launches[number], server.port))


@contextmanager
def running_fleet(model: str, num_servers: int, *options: str) -> Iterator[RunningFleet]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surefoot-fleet-")))
        key = folder / "fleet.key"
        key.write_text(KEY)
        ports = [free_port() for _ in range(num_servers)]
        launches = [own_launch(model, port, "--fleet-key", str(key), *options) for port in ports]
        servers = [stack.enter_context(running(launch, port)) for launch, port in zip(launches, ports, strict=True)]
        port = free_port()
        urls = [f"http://{HOST}:{server.port}" for server in servers]
        command = (*SUREFOOT, "fleet", "gateway", *urls, "--fleet-key", str(key), "--port", str(port))
        yield RunningFleet(launches, servers, stack.enter_context(running(Launch(command, "/ready"), port)), stack)


def measure_added_time(fleet: RunningFleet, tasks: Sequence[Task], runs: RealRuns) -> None:
    """One user, one request after the other, in turns at the server and at the gateway, which has this server alone.

    No two tasks share a prompt: the second would find it in the cache. The first requests of all are not counted: a
    server does some things once.
    """
    both = [(fleet.servers[0], runs.bare_ttft_s), (fleet.gateway, runs.fleet_ttft_s)]
    for number, task in enumerate(tasks):
        server, times = both[number % 2]
        done = closed_loop(server.endpoint(), [task], 1).done
        if number >= NUM_WARM:
            times += [outcome.ttft for outcome in done if outcome.times]


def measure_throughput(fleet: RunningFleet, tasks: Sequence[Task], rounds: int, runs: RealRuns) -> None:
    """32 streams, in turns at the server and at the gateway."""
    for _ in range(rounds):
        runs.bare_tokens_per_s.append(closed_loop(fleet.servers[0].endpoint(), tasks, 32).tokens_per_second)
        before = fleet.gateway.processor_s()
        through = closed_loop(fleet.gateway.endpoint(), tasks, 32)
        runs.fleet_tokens_per_s.append(through.tokens_per_second)
        num_tokens = sum(outcome.num_tokens for outcome in through.done)
        runs.gateway_us_per_token.append(1e6 * (fleet.gateway.processor_s() - before) / max(1, num_tokens))


def measure_survival(fleet: RunningFleet, num_rounds: int, say: Callable[[str], None], runs: RealRuns) -> None:
    """Streams of every kind while servers are killed, one at a time, each at a random moment."""
    rng = random.Random(num_rounds)
    bodies = [body_of(kind, seed) for seed in range(2) for kind in KINDS]
    wanted = [whole_answer(fleet.servers[0].port, body) for body in bodies]
    for number in range(num_rounds):
        say(f"killing servers: {number} of {num_rounds}")
        victim = rng.randrange(len(fleet.servers))
        answers = asyncio.run(_stream_all(fleet, bodies, victim, rng.uniform(0.0, 1.0)))
        runs.num_kills += 1
        runs.num_streams += len(bodies)
        runs.num_identical += sum(answer == whole for answer, whole in zip(answers, wanted, strict=True))
        fleet.restart(victim)


def body_of(kind: dict[str, Any], seed: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Tell me a story with the number {seed} in it."}]
    return {"model": "bench", "messages": messages, "max_tokens": 48, "seed": seed, "return_token_ids": True, **kind}


def whole_answer(port: int, body: dict[str, Any]) -> list[dict[str, Any]]:
    reply = httpx2.post(f"http://{HOST}:{port}{CHAT}", json=body, timeout=RESTART_S).raise_for_status()
    return [
        {
            "text": choice["message"]["content"],
            "tokens": choice["token_ids"],
            "logprobs": (choice["logprobs"] or {}).get("content", []),
            "end": choice["finish_reason"],
        }
        for choice in reply.json()["choices"]
    ]


async def _stream_all(
    fleet: RunningFleet, bodies: Sequence[dict[str, Any]], victim: int, after_s: float
) -> list[list[dict[str, Any]] | None]:
    async with httpx2.AsyncClient(timeout=RESTART_S) as client:
        url = f"http://{HOST}:{fleet.gateway.port}{CHAT}"
        streams = [asyncio.ensure_future(_streamed_answer(client, url, body)) for body in bodies]
        await asyncio.sleep(after_s)
        await asyncio.to_thread(fleet.kill, victim)
        return await asyncio.gather(*streams)


async def _streamed_answer(client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The answer as its stream tells it; None if the stream broke."""
    answers: list[dict[str, Any]] = [
        {"text": "", "tokens": [], "logprobs": [], "end": None} for _ in range(body.get("n", 1))
    ]
    try:
        async with client.stream("POST", url, json={**body, "stream": True}) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:]).get("choices", []):
                        _add(answers[choice["index"]], choice)
    except httpx2.HTTPError:
        return None
    return answers


def _add(answer: dict[str, Any], choice: dict[str, Any]) -> None:
    answer["text"] += choice["delta"].get("content") or ""
    answer["tokens"] += choice.get("token_ids") or []
    answer["logprobs"] += (choice["logprobs"] or {}).get("content", [])
    answer["end"] = choice["finish_reason"] or answer["end"]
