"""Many clients for a long time, most of them hostile: python -m tests.server.soak --minutes 10 --clients 200

Honest answers are compared bit for bit with those of a quiet server. The honest clients first run alone, for a fourth
of the time: how long they wait for a first token then is what hostile company is measured by. The server runs with a
limit on its memory, and closes its books at the end.

The server shares by user. Every honest client is a user; the hostile ones have stolen a key for every sixteen clients.
With --one-key-each all honest clients are one user and all hostile ones another, who has half of the machine by right:
since the honest clients ask again at once, their waits then double even on an ideal server.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.sampling.grammar_corpus import AMBIGUOUS_LARK, HOSTILE_REGEXES, HOSTILE_SCHEMAS
from tests.server.access.hostile_connections import HOSTILE_CONNECTIONS
from tests.server.access.test_sharing import quick_key
from tests.server.process import Server
from tests.smollm2 import find_file

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
ASK: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Name three colours."}]}
SHARE_HONEST = 0.2
CLIENTS_PER_HOSTILE_KEY = 16
SHARE_ALONE = 0.25  # of the time
MOST_TTFT_RATIO = 2.0
NUM_HONEST_REQUESTS = 10
KEYS_VARIABLE = "SUREFOOT_SOAK_KEYS"
BOOKS = "ended: all memory for keys and values was freed"


@dataclass
class HostileReport:
    """What happened to the hostile clients' requests."""

    ends: dict[str, int] = field(default_factory=dict)  # by kind and status
    complaints: list[str] = field(default_factory=list)  # answers that no request may get

    def note(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1


@dataclass
class Report:
    """What happened to honest clients, and to the server."""

    num_honest: int = 0
    num_different: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    engine_failures: float = 0
    peak_mib: float = 0
    limit_mib: float = 0
    seconds: float = 0
    books_balance: bool = False
    ttft_alone_s: list[float] = field(default_factory=list)
    ttft_beside_s: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def ttft_ratio(self) -> float:
        """Hostile clients who send work that is allowed have their share of the machine: that is part of it."""
        return percentile(self.ttft_beside_s, 0.95) / percentile(self.ttft_alone_s, 0.95)

    @property
    def is_sound(self) -> bool:
        """All but how long they waited, which a short run cannot tell."""
        clean = not (self.num_different or self.engine_failures or self.complaints)
        return self.num_honest > 0 and clean and self.books_balance and self.peak_mib < self.limit_mib

    @property
    def is_good(self) -> bool:
        return self.is_sound and self.ttft_ratio <= MOST_TTFT_RATIO

    def as_json(self) -> dict[str, Any]:
        waits = {"alone": self.ttft_alone_s, "beside": self.ttft_beside_s}
        told = {
            f"ttft_{name}": {"count": len(all_s), "p50_s": percentile(all_s, 0.5), "p95_s": percentile(all_s, 0.95)}
            for name, all_s in waits.items()
        }
        left = {key: value for key, value in asdict(self).items() if not key.startswith("ttft_")}
        return {"is_good": self.is_good, "ttft_ratio": self.ttft_ratio, **told, **left}


def percentile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")


# ---- honest ----


def honest_request(number: int) -> tuple[str, dict[str, Any]]:
    """Of every kind; the same number, the same request."""
    text = f"Name {number + 2} colours of the rainbow, and say why."
    if number % 5 == 4:
        return EMBEDDINGS, {"model": "small", "input": [text, text * (1 + number)]}
    body = {"model": "small", "messages": [{"role": "user", "content": text}], "seed": number, "max_tokens": 8}
    if number % 5 == 3:
        schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
        return CHAT, {**body, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    return CHAT, {**body, "logprobs": True, "top_logprobs": 3, "n": 1 + number % 2}


async def first_token_s(http: httpx.AsyncClient, number: int) -> float:
    """Seconds until a streamed answer's first text, refusals and pauses included."""
    body = {"model": "small", "messages": [{"role": "user", "content": f"Name {number} animals."}], "max_tokens": 4}
    began = time.monotonic()
    while True:
        async with http.stream("POST", CHAT, json={**body, "stream": True, "seed": number}) as reply:
            if reply.status_code not in (429, 503):
                assert reply.status_code == 200, await reply.aread()
                waited = None
                async for line in reply.aiter_lines():
                    if waited is None and '"content"' in line:
                        waited = time.monotonic() - began
                assert waited is not None
                return waited
        await asyncio.sleep(0.3)


async def honest_answer(http: httpx.AsyncClient, number: int) -> Any:
    route, body = honest_request(number)
    while True:
        reply = await http.post(route, json=body)
        if reply.status_code not in (429, 503):
            assert reply.status_code == 200, reply.text
            found = reply.json()
            return found["data"] if route == EMBEDDINGS else found["choices"]
        await asyncio.sleep(0.3)


# ---- hostile ----

Hostile = Callable[[httpx.AsyncClient, random.Random], Awaitable[str]]


async def leaves(http: httpx.AsyncClient, rng: random.Random) -> str:
    """At some phase: while sending, waiting, reading."""
    body = json.dumps({**ASK, "max_tokens": 900, "ignore_eos": True, "stream": rng.random() < 0.5, "n": 4}).encode()
    address = http.base_url
    _, writer = await asyncio.open_connection(address.host, address.port)
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Authorization: {http.headers['Authorization']}", f"Content-Length: {len(body)}", "", ""]
    writer.write(("\r\n".join(lines).encode() + body)[: rng.choice([20, 200, 300, 10_000, 10_000])])
    await writer.drain()
    await asyncio.sleep(rng.choice([0.0, 0.05, 0.3, 0.6, 2.0]))
    writer.transport.abort()
    return "left"


async def reads_slowly(http: httpx.AsyncClient, rng: random.Random) -> str:
    body = {**ASK, "max_tokens": 80, "ignore_eos": True, "stream": True, "logprobs": True, "top_logprobs": 20}
    async with http.stream("POST", CHAT, json=body) as reply:
        async for _ in reply.aiter_bytes(512):
            await asyncio.sleep(0.1)
            if rng.random() < 0.05:
                break
    return f"{reply.status_code}"


def as_format(grammar: str) -> dict[str, Any]:
    """A hostile grammar that goes on for as long as it may."""
    return {"response_format": {"type": "grammar", "grammar": grammar}, "max_tokens": 400, "logit_bias": {"2": -100}}


ENDLESS = {"type": "string", "allOf": [{"pattern": f".*{number}.*"} for number in range(40)]}
WORDS = "a " * 100_000
TOO_MUCH: list[dict[str, Any]] = [
    {"n": 10**9},
    {"n": 16, "max_tokens": 60, "ignore_eos": True},
    {"max_tokens": -1},
    {"temperature": 1e308},
    {"temperature": -3},
    {"logit_bias": {"999999999": 5}},
    {"stop": ["a"] * 1000},
    {"seed": -(2**80)},
    {"top_logprobs": 10**6, "logprobs": True},
    {"messages": [{"role": "user", "content": WORDS}]},
    {"messages": [{"role": "user", "content": "a"}] * 5000},
    {"response_format": {"type": "regex", "regex": ".*" * 20_000}},
    {"response_format": {"type": "regex", "regex": "(a|a)*" * 50 + "b"}},
    {"response_format": {"type": "grammar", "grammar": "start: " + '"a" ' * 300_000}},
    {"response_format": {"type": "regex", "regex": "a{1000000000}"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": ENDLESS}}},
    {"tools": [{"type": "function", "function": {"name": f"f{n}", "parameters": ENDLESS}} for n in range(128)]},
]
RAW = [
    b'{"model": "small", "messages": [{"role": "user", "content": "\xff\xfe\x80"}]}',
    b'{"model": "small", "messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 3}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "top_p": -Infinity}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1e400}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a": ' * 20_000,
    b"\x00" * 1000,
]


GRAMMARS = [as_format(text) for text in AMBIGUOUS_LARK.values()]
GRAMMARS += [
    {"response_format": {"type": "regex", "regex": text}, "max_tokens": 400} for text in HOSTILE_REGEXES.values()
]
GRAMMARS += [
    {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "max_tokens": 400}
    for schema in HOSTILE_SCHEMAS.values()
]


async def sends_a_grammar(http: httpx.AsyncClient, rng: random.Random) -> str:
    body = {**ASK, **rng.choice(GRAMMARS), "seed": rng.randrange(1000)}
    reply = await http.post(CHAT, json=body)
    assert reply.status_code in (200, 400, 413, 429, 503), reply.text
    return f"{reply.status_code}"


async def asks_too_much(http: httpx.AsyncClient, rng: random.Random) -> str:
    reply = await http.post(CHAT, json={**ASK, "max_tokens": 4, **rng.choice(TOO_MUCH)})
    assert reply.status_code in (200, 400, 413, 429, 503), reply.text
    return f"{reply.status_code}"


async def sends_nonsense(http: httpx.AsyncClient, rng: random.Random) -> str:
    route = rng.choice([CHAT, COMPLETIONS, EMBEDDINGS, "/v1/messages", "/v1/responses", "/tokenize", "/v1/batches"])
    headers = {"Content-Type": "application/json"}
    reply = await http.post(route, content=rng.choice(RAW), headers=headers)
    assert reply.status_code in (200, 400, 413, 429, 503), reply.text
    return f"{reply.status_code}"


async def embeds_much(http: httpx.AsyncClient, rng: random.Random) -> str:
    body = {"model": "small", "input": ["word " * rng.choice([10, 500, 3000])] * rng.choice([1, 8, 300])}
    try:
        reply = await http.post(EMBEDDINGS, json=body, timeout=rng.choice([1.0, 60.0]))
    except httpx.TimeoutException:
        return "left"
    assert reply.status_code in (200, 400, 413, 429, 503), reply.text
    return f"{reply.status_code}"


async def comes_from_elsewhere(http: httpx.AsyncClient, rng: random.Random) -> str:
    origin = rng.choice(["http://[", "null", "http://evil.example", "file://", "http://localhost:99999999", "a" * 3000])
    reply = await http.post(CHAT, json={**ASK, "max_tokens": 1}, headers={"Origin": origin})
    assert reply.status_code in (200, 400, 403, 413, 429, 431, 503), reply.text
    return f"{reply.status_code}"


HOSTILE: list[Hostile] = [leaves, leaves, reads_slowly, asks_too_much, asks_too_much, sends_nonsense, embeds_much]
HOSTILE += [sends_a_grammar, sends_a_grammar, comes_from_elsewhere, *HOSTILE_CONNECTIONS]

# ---- all of them ----


@dataclass(frozen=True)
class Keys:
    honest: list[str]
    hostile: list[str]


@asynccontextmanager
async def connected(root: str, keys: list[str], num_clients: int) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client for each user's key."""
    limits = httpx.Limits(max_connections=2 * num_clients)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=root, headers={"Authorization": f"Bearer {key}"}, timeout=600, limits=limits)
            )
            for key in keys
        ]


async def run_hostile(root: str, keys: list[str], num_clients: int) -> HostileReport:
    """Until standard input closes; then the clients that still wait go, all at once.

    Prints an empty line once the number of ended requests reaches the number of clients.
    """
    report, over = HostileReport(), asyncio.Event()

    async def be_hostile(http: httpx.AsyncClient, client: int) -> None:
        rng = random.Random(client)
        while not over.is_set():
            kind = rng.choice(HOSTILE)
            try:
                report.note(f"{kind.__name__} {await kind(http, rng)}")
            except (httpx.TransportError, OSError) as error:
                report.note(f"{kind.__name__} {type(error).__name__}")
            except AssertionError as error:
                report.complaints.append(f"{kind.__name__}: {str(error)[:300]}")
            if sum(report.ends.values()) == num_clients:
                print(flush=True)
            await asyncio.sleep(rng.random() * 0.2)

    async with connected(root, keys, num_clients) as users:
        clients = [asyncio.create_task(be_hostile(users[number % len(users)], number)) for number in range(num_clients)]
        await asyncio.to_thread(sys.stdin.read)
        over.set()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return report


@asynccontextmanager
async def hostile_company(root: str, keys: list[str], num_clients: int, report: Report) -> AsyncIterator[asyncio.Event]:
    """Hostile clients in a process of their own: building a hostile body must not delay the honest clients' clocks.

    They yield the processor to the server and the honest clients (nice 19), as clients on another machine would.
    The event that it yields is set once the clients are all at work.
    """
    words = [sys.executable, "-m", __spec__.name, "--hostile", root, "--clients", str(num_clients)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", *words, stdin=pipe, stdout=pipe, env={**os.environ, KEYS_VARIABLE: " ".join(keys)}
    )
    assert process.stdout is not None
    at_work = asyncio.Event()

    async def wait_until_at_work(lines: asyncio.StreamReader) -> None:
        await lines.readline()
        at_work.set()

    waiting = asyncio.create_task(wait_until_at_work(process.stdout))
    try:
        yield at_work
    finally:
        await waiting
        output, _ = await process.communicate(b"")  # closes its standard input
    hostile = json.loads(output)
    report.ends, report.complaints = hostile["ends"], report.complaints + hostile["complaints"]


async def run_clients(server: Server, keys: Keys, num_clients: int, seconds: float, report: Report) -> None:
    num_honest = num_honest_of(num_clients)
    async with connected(server.root, keys.honest, num_clients) as users:
        quiet = [await honest_answer(users[0], number) for number in range(NUM_HONEST_REQUESTS)]

        async def be_honest(client: int, until: float, company: asyncio.Event, waits: list[float]) -> None:
            number, http = client, users[client % len(users)]
            while not waits or time.monotonic() < until or not company.is_set():
                waits.append(await first_token_s(http, number))
                same = await honest_answer(http, number % NUM_HONEST_REQUESTS) == quiet[number % NUM_HONEST_REQUESTS]
                report.num_honest += 1
                report.num_different += not same
                number += 1

        async def all_honest(seconds: float, company: asyncio.Event, waits: list[float]) -> None:
            until = time.monotonic() + seconds
            await asyncio.gather(*(be_honest(client, until, company, waits) for client in range(num_honest)))

        nobody = asyncio.Event()
        nobody.set()
        await all_honest(SHARE_ALONE * seconds, nobody, report.ttft_alone_s)
        async with hostile_company(server.root, keys.hostile, num_clients - num_honest, report) as company:
            await all_honest((1 - SHARE_ALONE) * seconds, company, report.ttft_beside_s)


def num_honest_of(num_clients: int) -> int:
    return max(1, round(SHARE_HONEST * num_clients))


def make_keys(file: Path, num_of_each: int | None, num_clients: int) -> Keys:
    """A key for every honest client, and one for every sixteen hostile ones, unless told how many of each."""
    num_honest = num_of_each or num_honest_of(num_clients)
    num_hostile = num_of_each or max(1, (num_clients - num_honest) // CLIENTS_PER_HOSTILE_KEY)
    return Keys(
        honest=[quick_key(file, f"honest-{number}", admin=True) for number in range(num_honest)],
        hostile=[quick_key(file, f"hostile-{number}") for number in range(num_hostile)],
    )


def soak(model: Path, num_clients: int, seconds: float, memory_mib: int, one_key_each: bool = False) -> Report:
    report = Report(limit_mib=memory_mib)
    with tempfile.TemporaryDirectory(prefix="surefoot-soak-") as folder:
        file = Path(folder) / "keys.toml"
        keys = make_keys(file, 1 if one_key_each else None, num_clients)
        words = ["--keys", str(file), "--max-context", "2048", "--max-running", "16", "--drain-s", "5"]
        server = Server(model, *words, "--state-dir", f"{folder}/state", memory_bytes=memory_mib << 20)
        try:
            began = time.monotonic()
            asyncio.run(run_clients(server, keys, num_clients, seconds, report))
            report.seconds = time.monotonic() - began
            _look_at(server, keys.honest[0], report)
        finally:
            server.stop()
    return report


def _look_at(server: Server, key: str, report: Report) -> None:
    report.engine_failures = server.metric("surefoot:engine_failures_total", key)
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmPeak:\s+(\d+)", status)
    assert found is not None
    report.peak_mib = int(found[1]) / 1024
    server.terminate()
    server.wait_for(rf"{BOOKS}|was not all freed", 60)
    server.process.wait(timeout=60)
    log = server.stop()
    report.books_balance = BOOKS in log
    if "Traceback" in log:
        report.complaints.append("the log has a traceback: " + log[log.index("Traceback") :][:2000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--memory-mib", type=int, default=3072, help="what the server's process may map")
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2-135M by default")
    parser.add_argument("--one-key-each", action="store_true", help="one key for all honest clients, one for the rest")
    parser.add_argument("--hostile", metavar="ADDRESS", help=argparse.SUPPRESS)  # the process of the hostile clients
    given = parser.parse_args()
    if given.hostile:
        hostile = asyncio.run(run_hostile(given.hostile, os.environ[KEYS_VARIABLE].split(), given.clients))
        print(json.dumps(asdict(hostile)))
        return
    report = soak(given.model or find_file(), given.clients, 60 * given.minutes, given.memory_mib, given.one_key_each)
    print(json.dumps(report.as_json(), indent=2))
    raise SystemExit(not report.is_good)


if __name__ == "__main__":
    main()
