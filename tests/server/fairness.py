"""One user with many requests against one with few: what the few feel. python -m tests.server.fairness"""

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.model.test_smollm2 import find_file
from tests.server.process import Server
from tests.server.test_sharing import quick_key

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Fairness:
    """Seconds to the first token, 95th percentile, of the user with one request at a time: on an idle server, and when
    every row is another's.

    step_s: the mean step meanwhile. num_ended: of the other's requests, before the last of these was answered.
    """

    idle_p95_s: float
    busy_p95_s: float
    step_s: float
    num_ended: int

    @property
    def ratio(self) -> float:
        return (self.busy_p95_s - self.step_s) / self.idle_p95_s


def request(number: int, max_tokens: int) -> dict[str, Any]:
    text = f"Number {number}. Tell me about the colours of the sea in a storm, and what painters made of them."
    messages = [{"role": "user", "content": text}]
    return {
        "model": "small", "messages": messages, "max_tokens": max_tokens, "seed": number, "ignore_eos": True,
        "stream": True,
    }  # fmt: skip


async def first_token_s(http: httpx.AsyncClient, number: int, max_tokens: int = 4) -> float:
    began = time.monotonic()
    first = 0.0
    async with http.stream("POST", CHAT, json=request(number, max_tokens)) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if not first and '"content"' in line and '"content":""' not in line:
                first = time.monotonic() - began
    return first


def p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


async def measure(server: Server, few: str, many: str, num_many: int, num_few: int, max_running: int) -> Fairness:
    def connect(key: str) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=num_many + 1)
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=server.root, headers=headers, timeout=300, limits=limits)

    def steps() -> tuple[float, float]:
        names = ("surefoot:step_seconds_sum", "surefoot:step_seconds_count")
        return server.metric(names[0], few), server.metric(names[1], few)

    async with connect(few) as one, connect(many) as other:
        await first_token_s(one, 1000)
        idle = [await first_token_s(one, number) for number in range(num_few)]
        crowd = [asyncio.create_task(first_token_s(other, 100 + number, 1500)) for number in range(num_many)]
        while server.metric("vllm:num_requests_running", few) < max_running:
            await asyncio.sleep(0.1)
        before = steps()
        busy = [await first_token_s(one, 50 + number) for number in range(num_few)]
        after = steps()
        num_ended = sum(task.done() for task in crowd)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
    return Fairness(p95(idle), p95(busy), (after[0] - before[0]) / max(1, after[1] - before[1]), num_ended)


def run(model: Path, num_many: int = 50, num_few: int = 8, max_running: int = 32) -> Fairness:
    with tempfile.TemporaryDirectory(prefix="surefoot-fair-") as folder:
        file = Path(folder) / "keys.toml"
        few, many = quick_key(file, "few"), quick_key(file, "many")
        server = Server(model, "--keys", str(file), "--max-context", "2048", "--max-running", str(max_running))
        try:
            return asyncio.run(measure(server, few, many, num_many, num_few, max_running))
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=50)
    parser.add_argument("--few", type=int, default=8)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    found = run(given.model or find_file(), given.many, given.few)
    print(json.dumps({**asdict(found), "ratio": found.ratio}))


if __name__ == "__main__":
    main()
