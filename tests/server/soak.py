"""Many clients for a long time, most of them hostile: python -m tests.server.soak --minutes 10 --clients 200

Honest answers are compared bit for bit with those of a quiet server. The honest clients first run alone, for a fourth
of the time: how long they wait for a first token then is what hostile company is measured by. The server runs with a
limit on its memory, which must level off, and closes its books at the end. The last line says how many hostile requests
were made, and the 95th percentile of both waits. With --gateway all clients talk to a gateway over that server.

It ends in time: a client that still waits GRACE_S after the end is cut off, and its wait counts as long as it was.

The server shares by user. Every honest client is a user; the hostile ones have stolen a key for every sixteen clients.
With --one-key-each all honest clients are one user and all hostile ones another, who has half of the machine by right:
since the honest clients ask again at once, their waits then double even on an ideal server.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from tests.server.access.sharing import quick_key
from tests.server.doors import GATEWAY, SERVER, OpenDoor, open_door
from tests.server.hostile_clients import CHAT, EMBEDDINGS, HOSTILE, Hostile
from tests.server.process import Server
from tests.smollm2 import find_file

SHARE_HONEST = 0.2
CLIENTS_PER_HOSTILE_KEY = 16
SHARE_ALONE = 0.25  # of the time
MOST_TTFT_RATIO = 2.0
LEAST_PER_CLIENT_S = 1 / 3  # requests of a hostile client a second: 24,000 by 160 in their share of ten minutes
MOST_PAUSE_S = 0.8  # between a hostile client's requests
NUM_HONEST_REQUESTS = 10
GRACE_S = 30.0
START_S = 300.0  # for the first answers, and for the hostile clients' process to begin: a bound, not an aim
SAMPLE_S = 1.0  # between two looks at the memory
LEVEL_SHARE, LEVEL_MIB = 1.05, 16.0  # by how much resident memory may grow from the third quarter to the last
KEYS_VARIABLE = "SUREFOOT_SOAK_KEYS"
BOOKS = "ended: all memory for keys and values was freed"


@dataclass
class HostileReport:
    """What happened to the hostile clients' requests."""

    ends: dict[str, int] = field(default_factory=dict)  # by kind and status
    complaints: list[str] = field(default_factory=list)  # answers that no request may get
    seconds: float = 0  # from the first request to the last
    cpu_s: float = 0  # of the hostile clients' own process

    def note(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1

    @property
    def num_requests(self) -> int:
        return sum(self.ends.values())


@dataclass
class Phase:
    """What happened to honest clients while they were alone, or beside hostile ones."""

    begun_s: list[float] = field(default_factory=list)  # until an answer's stream began: its request is in the engine
    waits_s: list[float] = field(default_factory=list)  # until an answer's first text
    num_answers: int = 0  # that were compared
    num_cut: int = 0  # requests that had not ended GRACE_S after the end
    seconds: float = 0

    def as_json(self) -> dict[str, float]:
        told = {"answers": self.num_answers, "cut": self.num_cut, "seconds": round(self.seconds, 1)}
        waits = {"begun": self.begun_s, "first_token": self.waits_s}
        shares = {"p50_s": 0.5, "p95_s": 0.95}
        return told | {
            f"{name}_{share}": percentile(each, value)
            for name, each in waits.items()
            for share, value in shares.items()
        }


@dataclass
class Report:
    """What happened to honest clients, to hostile ones, and to the server."""

    num_clients: int
    limit_mib: float
    alone: Phase = field(default_factory=Phase)
    beside: Phase = field(default_factory=Phase)
    hostile: HostileReport = field(default_factory=HostileReport)
    num_different: int = 0
    engine_failures: float = 0
    peak_mib: float = 0
    resident_mib: list[float] = field(default_factory=list)  # of server and gateway, beside hostile clients
    num_steps: float = 0
    seconds: float = 0
    books_balance: bool = False
    complaints: list[str] = field(default_factory=list)

    @property
    def ttft_ratio(self) -> float:
        """Hostile clients who send work that is allowed have their share of the machine: that is part of it."""
        return percentile(self.beside.waits_s, 0.95) / percentile(self.alone.waits_s, 0.95)

    @property
    def begun_ratio(self) -> float:
        """What the server alone makes of it, before the engine shares the machine."""
        return percentile(self.beside.begun_s, 0.95) / percentile(self.alone.begun_s, 0.95)

    @property
    def is_level(self) -> bool:
        """Resident memory does not grow any more. A short run cannot tell."""
        quarter = len(self.resident_mib) // 4
        if quarter * SAMPLE_S < 30:
            return True
        third, last = (median(self.resident_mib[-n * quarter :][:quarter]) for n in (2, 1))
        return last <= LEVEL_SHARE * third + LEVEL_MIB

    @property
    def num_hostile_wanted(self) -> int:
        """Fewer hostile requests would be no such load."""
        return round(LEAST_PER_CLIENT_S * (self.num_clients - num_honest_of(self.num_clients)) * self.beside.seconds)

    @property
    def is_sound(self) -> bool:
        """All but how long they waited, which a short run cannot tell."""
        clean = not (self.num_different or self.engine_failures or self.complaints or self.hostile.complaints)
        answered = self.alone.num_answers > 0 and self.beside.num_answers > 0
        return answered and clean and self.books_balance and self.peak_mib < self.limit_mib

    @property
    def is_good(self) -> bool:
        enough = self.hostile.num_requests >= self.num_hostile_wanted
        return self.is_sound and self.is_level and enough and max(self.ttft_ratio, self.begun_ratio) <= MOST_TTFT_RATIO

    def as_json(self) -> dict[str, Any]:
        phases = {"alone": self.alone.as_json(), "beside": self.beside.as_json()}
        verdict = {name: getattr(self, name) for name in ("is_good", "is_level", "ttft_ratio", "begun_ratio")}
        return {**verdict, **asdict(self), **phases}

    def summary(self) -> str:
        alone, beside = self.alone.as_json(), self.beside.as_json()
        return (
            f"soak: {self.hostile.num_requests} hostile requests (at least {self.num_hostile_wanted} wanted); p95 of "
            f"honest first tokens {alone['first_token_p95_s']:.3f} s alone, {beside['first_token_p95_s']:.3f} s beside "
            f"them: {self.ttft_ratio:.2f} times; of beginnings {alone['begun_p95_s']:.3f} and "
            f"{beside['begun_p95_s']:.3f} s: {self.begun_ratio:.2f} times ({MOST_TTFT_RATIO:g} allowed); "
            f"{self.num_different} answers differ; memory {'levels off' if self.is_level else 'grows'}: "
            f"{'good' if self.is_good else 'not good'}"
        )


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


async def read_streamed(http: httpx.AsyncClient, number: int, phase: Phase) -> None:
    """Notes the seconds until a streamed answer begins and until its first text, refusals and pauses included.

    An answer begins with an event without text, which says whose turn it is."""
    body = {"model": "small", "messages": [{"role": "user", "content": f"Name {number} animals."}], "max_tokens": 4}
    began = time.monotonic()
    due = [phase.begun_s, phase.waits_s]
    try:
        while due:
            async with http.stream("POST", CHAT, json={**body, "stream": True, "seed": number}) as reply:
                if reply.status_code not in (429, 503):
                    assert reply.status_code == 200, await reply.aread()
                    async for line in reply.aiter_lines():
                        is_text = '"content"' in line and '"content":""' not in line.replace(" ", "")
                        if due and line.startswith("data: {") and (is_text or len(due) == 2):
                            due.pop(0).append(time.monotonic() - began)
                    assert not due
                    return
            await asyncio.sleep(0.3)
    except asyncio.CancelledError:
        for waits_s in due:
            waits_s.append(time.monotonic() - began)  # as long as this at least
        raise


async def honest_answer(http: httpx.AsyncClient, number: int) -> Any:
    route, body = honest_request(number)
    while True:
        reply = await http.post(route, json=body)
        if reply.status_code not in (429, 503):
            assert reply.status_code == 200, reply.text
            found = reply.json()
            return found["data"] if route == EMBEDDINGS else found["choices"]
        await asyncio.sleep(0.3)


@dataclass(frozen=True)
class HonestClients:
    """Clients of which each waits for a streamed answer, then compares a whole one, and begins again."""

    users: list[httpx.AsyncClient]
    count: int
    quiet: list[Any]  # the whole answers as they must be
    grace_s: float  # after which a client that still waits at the end is cut off

    async def run(self, seconds: float, report: Report, phase: Phase) -> None:
        began = time.monotonic()
        clients = [self._be_honest(client, began + seconds, report, phase) for client in range(self.count)]
        await asyncio.gather(*clients)
        phase.seconds = time.monotonic() - began

    async def _be_honest(self, client: int, until: float, report: Report, phase: Phase) -> None:
        number, http = client, self.users[client % len(self.users)]
        try:
            async with asyncio.timeout(until + self.grace_s - time.monotonic()):
                while time.monotonic() < until or not phase.num_answers:
                    await read_streamed(http, number, phase)
                    which = number % NUM_HONEST_REQUESTS
                    report.num_different += await honest_answer(http, which) != self.quiet[which]
                    phase.num_answers += 1
                    number += 1
        except TimeoutError:
            phase.num_cut += 1


# ---- hostile ----


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


async def run_hostile(root: str, keys: list[str], num_clients: int, kinds: Sequence[Hostile]) -> HostileReport:
    """Prints an empty line when the clients begin. They go all at once when standard input closes."""
    report = HostileReport()

    async def be_hostile(http: httpx.AsyncClient, client: int) -> None:
        rng = random.Random(client)
        while True:
            kind = rng.choice(kinds)
            try:
                report.note(f"{kind.__name__} {await kind(http, rng)}")
            except (httpx.TransportError, OSError) as error:
                report.note(f"{kind.__name__} {type(error).__name__}")
            except AssertionError as error:
                report.complaints.append(f"{kind.__name__}: {str(error)[:300]}")
            await asyncio.sleep(rng.random() * MOST_PAUSE_S)

    async with connected(root, keys, num_clients) as users:
        began, used_s = time.monotonic(), time.process_time()
        clients = [asyncio.create_task(be_hostile(users[number % len(users)], number)) for number in range(num_clients)]
        print(flush=True)
        await asyncio.to_thread(sys.stdin.read)
        report.seconds, report.cpu_s = time.monotonic() - began, time.process_time() - used_s
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return report


@asynccontextmanager
async def hostile_company(
    root: str, keys: list[str], num_clients: int, report: Report, grace_s: float, only: Sequence[str]
) -> AsyncIterator[None]:
    """Hostile clients in a process of their own: its work must not delay the honest clients' clocks."""
    words = [sys.executable, "-m", __spec__.name, "--hostile", root, "--clients", str(num_clients)]
    words += [word for name in only for word in ("--only", name)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, env={**os.environ, KEYS_VARIABLE: " ".join(keys)}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            await process.stdout.readline()
        yield
        async with asyncio.timeout(grace_s):
            output, _ = await process.communicate(b"")  # closes its standard input
        report.hostile = HostileReport(**json.loads(output))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# ---- all of them ----


async def watch_memory(processes: Sequence[Server], samples_mib: list[float]) -> None:
    while True:
        samples_mib.append(sum(_status_mib(server, "VmRSS") for server in processes))
        await asyncio.sleep(SAMPLE_S)


def _status_mib(server: Server, name: str) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024


async def run_clients(
    door: OpenDoor, keys: Keys, seconds: float, report: Report, grace_s: float, only: Sequence[str] = ()
) -> None:
    server, processes = door.server, [door.server, *([door.behind] if door.behind is not None else [])]
    for process in processes:
        assert process.process.stdout is not None
        asyncio.get_running_loop().add_reader(process.process.stdout, process.read)  # a full pipe would stop it
    num_clients = report.num_clients
    num_honest = num_honest_of(num_clients)
    async with connected(server.root, keys.honest, num_clients) as users:
        async with asyncio.timeout(START_S):
            quiet = [await honest_answer(users[0], number) for number in range(NUM_HONEST_REQUESTS)]
        honest = HonestClients(users, num_honest, quiet, grace_s)
        await honest.run(SHARE_ALONE * seconds, report, report.alone)
        async with hostile_company(server.root, keys.hostile, num_clients - num_honest, report, grace_s, only):
            watching = asyncio.create_task(watch_memory(processes, report.resident_mib))
            await honest.run((1 - SHARE_ALONE) * seconds, report, report.beside)
            watching.cancel()


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


def soak(
    model: Path,
    num_clients: int,
    seconds: float,
    memory_mib: int,
    one_key_each: bool = False,
    grace_s: float = GRACE_S,
    kind: str = SERVER,
    only: Sequence[str] = (),
) -> Report:
    """only: names of what hostile clients do; empty: everything."""
    report = Report(num_clients, memory_mib)
    with tempfile.TemporaryDirectory(prefix="surefoot-soak-") as folder:
        file = Path(folder) / "keys.toml"
        keys = make_keys(file, 1 if one_key_each else None, num_clients)
        inner = ("--max-context", "2048", "--max-running", "16", "--drain-s", "5", "--pooling", "mean")
        state = ("--keys", str(file), "--state-dir", f"{folder}/state")
        outer = () if kind == SERVER else ("--keys", str(file), "--drain-s", "5")
        door = open_door(kind, model, Path(folder), *outer, inner=(*inner, *state), memory_bytes=memory_mib << 20)
        try:
            began = time.monotonic()
            asyncio.run(run_clients(door, keys, seconds, report, grace_s, only))
            report.seconds = time.monotonic() - began
            _look_at(door, keys.honest[0], report)
        finally:
            door.stop()
    return report


def _look_at(door: OpenDoor, key: str, report: Report) -> None:
    server = door.behind or door.server
    report.engine_failures = server.metric("surefoot:engine_failures_total", key)
    report.num_steps = server.metric("surefoot:engine_steps_total", key)
    report.peak_mib = _status_mib(server, "VmPeak")
    server.terminate()
    server.wait_for(rf"{BOOKS}|was not all freed", 60)
    server.process.wait(timeout=60)
    logs = (server.stop(), door.stop())
    report.books_balance = BOOKS in logs[0]
    report.complaints += [f"a traceback: {log[log.index('Traceback') :][:2000]}" for log in logs if "Traceback" in log]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--memory-mib", type=int, default=3072, help="what the server's process may map")
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2-135M by default")
    parser.add_argument("--one-key-each", action="store_true", help="one key for all honest clients, one for the rest")
    parser.add_argument("--gateway", action="store_true", help="clients talk to a gateway over the server")
    names = sorted({kind.__name__ for kind in HOSTILE})
    parser.add_argument("--only", action="append", choices=names, default=[], help="what hostile clients do; repeated")
    parser.add_argument("--hostile", metavar="ADDRESS", help=argparse.SUPPRESS)  # the process of the hostile clients
    given = parser.parse_args()
    if given.hostile:
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of connections that the server has closed
        kinds = [kind for kind in HOSTILE if kind.__name__ in (given.only or names)]
        hostile = asyncio.run(run_hostile(given.hostile, os.environ[KEYS_VARIABLE].split(), given.clients, kinds))
        print(json.dumps(asdict(hostile)))
        return
    kind = GATEWAY if given.gateway else SERVER
    model, seconds = given.model or find_file(), 60 * given.minutes
    report = soak(model, given.clients, seconds, given.memory_mib, given.one_key_each, kind=kind, only=given.only)
    print(json.dumps(report.as_json(), indent=2))
    print(report.summary(), file=sys.stderr)
    raise SystemExit(not report.is_good)


if __name__ == "__main__":
    main()
