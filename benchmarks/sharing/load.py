"""Requests for two models at once: the time until all are answered, and the answers."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.sharing.arrangements import ServedModel
from surefoot.bench.harness.server_process import HOST

TIMEOUT_S = 600.0
PROMPT_TOKENS = 24


@dataclass(frozen=True)
class PairLoad:
    """Requests for each model, all sent at once."""

    name: str
    num_requests: tuple[int, int]
    num_new: int  # tokens of each answer

    @property
    def num_tokens(self) -> int:
        return sum(self.num_requests) * self.num_new


@dataclass(frozen=True)
class PairRun:
    seconds: float  # until the last answer
    answers: list[Any]  # tokens and their log-probabilities, in the order of the requests


def run_load(served: Sequence[ServedModel], load: PairLoad) -> PairRun:
    return asyncio.run(_run(served, load))


async def _run(served: Sequence[ServedModel], load: PairLoad) -> PairRun:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        requests = [
            _ask(client, model, number, load.num_new)
            for model, count in zip(served, load.num_requests, strict=True)
            for number in range(count)
        ]
        begin = time.perf_counter()
        answers = await asyncio.gather(*requests)
        return PairRun(time.perf_counter() - begin, answers)


async def _ask(client: httpx2.AsyncClient, model: ServedModel, number: int, num_new: int) -> Any:
    prompt = [1 + (number * 31 + place * 7) % 200 for place in range(PROMPT_TOKENS)]
    body = {
        "model": model.name, "prompt": prompt, "max_tokens": num_new, "ignore_eos": True, "temperature": 1,
        "seed": number, "logprobs": 1,
    }  # fmt: skip
    reply = await client.post(f"http://{HOST}:{model.port}/v1/completions", json=body)
    return reply.raise_for_status().json()["choices"]
