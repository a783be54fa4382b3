"""Many clients at once, some of them hostile: nothing breaks, nothing leaks, honest answers do not change."""

import asyncio
import json
import random
from typing import Any

import httpx

from tests.server.process import Server
from tests.server.test_chat import ASK
from tests.server.test_streams import wait_until_idle

NUM_CLIENTS, NUM_HONEST = 40, 6
ROUTE = "/v1/chat/completions"


def honest_request(seed: int) -> dict[str, Any]:
    return {**ASK, "seed": seed, "logprobs": True, "max_tokens": 10, "n": 1 + seed % 2}


async def honest(http: httpx.AsyncClient, seed: int) -> Any:
    while True:
        reply = await http.post(ROUTE, json=honest_request(seed))
        if reply.status_code != 429:  # the hostile fill the queue
            assert reply.status_code == 200, reply.text
            return [(choice["message"], choice["logprobs"]) for choice in reply.json()["choices"]]
        await asyncio.sleep(0.2)


async def leaves_at_once(http: httpx.AsyncClient, rng: random.Random) -> None:
    """At some phase: while sending, waiting, reading."""
    body = json.dumps({**ASK, "max_tokens": 900, "ignore_eos": True, "stream": rng.random() < 0.5, "n": 4}).encode()
    address = http.base_url
    _, writer = await asyncio.open_connection(address.host, address.port)
    lines = [f"POST {ROUTE} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    writer.write((head.encode() + body)[: rng.choice([20, 150, 10_000, 10_000])])
    await writer.drain()
    await asyncio.sleep(rng.choice([0.0, 0.05, 0.3, 0.6]))
    writer.transport.abort()


async def reads_slowly(http: httpx.AsyncClient, rng: random.Random) -> None:
    body = {**ASK, "max_tokens": 60, "ignore_eos": True, "stream": True, "logprobs": True, "top_logprobs": 20}
    async with http.stream("POST", ROUTE, json=body) as reply:
        async for _ in reply.aiter_bytes(512):
            await asyncio.sleep(0.1)
            if rng.random() < 0.1:
                break


ENDLESS = {"type": "string", "allOf": [{"pattern": f".*{number}.*"} for number in range(40)]}
TOO_MUCH: list[dict[str, Any]] = [
    {"n": 10**9},
    {"max_tokens": -1},
    {"temperature": 1e308},
    {"logit_bias": {"999999999": 5}},
    {"messages": [{"role": "user", "content": "a " * 90_000}]},
    {"response_format": {"type": "regex", "regex": ".*" * 20_000}},
    {"response_format": {"type": "grammar", "grammar": "start: " + '"a" ' * 300_000}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": ENDLESS}}},
]


async def asks_too_much(http: httpx.AsyncClient, rng: random.Random) -> None:
    reply = await http.post(ROUTE, json={**ASK, "max_tokens": 4, **rng.choice(TOO_MUCH)}, timeout=60)
    assert reply.status_code in (200, 400, 413, 429), reply.text


async def company(server: Server) -> list[Any]:
    rng = random.Random(5)
    limits = httpx.Limits(max_connections=NUM_CLIENTS + NUM_HONEST)
    async with httpx.AsyncClient(base_url=server.root, timeout=90, limits=limits) as http:
        hostile = [
            rng.choice([leaves_at_once, leaves_at_once, reads_slowly, asks_too_much])(http, random.Random(number))
            for number in range(NUM_CLIENTS)
        ]
        wanted = [honest(http, seed) for seed in range(NUM_HONEST)]
        found = await asyncio.gather(*wanted, *hostile)
    return found[:NUM_HONEST]


async def alone(server: Server) -> list[Any]:
    async with httpx.AsyncClient(base_url=server.root, timeout=60) as http:
        return [await honest(http, seed) for seed in range(NUM_HONEST)]


def test_honest_answers_do_not_change(server: Server) -> None:
    quiet = asyncio.run(alone(server))
    before = server.metric("surefoot:engine_failures_total")
    assert asyncio.run(company(server)) == quiet
    wait_until_idle(server, 20)
    assert server.metric("surefoot:engine_failures_total") == before
    assert httpx.get(f"{server.root}/ready").status_code == 200
    assert "Traceback" not in server.read()


def test_the_schema_of_the_api_is_there(server: Server) -> None:
    paths = httpx.get(f"{server.root}/openapi.json").json()["paths"]
    assert {ROUTE, "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/tokenize"} <= set(paths)
