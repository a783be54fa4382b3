"""A fleet under siege: python -m tests.fleet.siege [--positions 64] [--moments 100] [--streams 200]

Three servers, each in a network of its own, behind a gateway. Clients stream answers of every kind. Meanwhile servers
are killed with kill -9, at each token position of a stream that is watched and at random moments; servers are hung with
SIGSTOP, and links are cut. Every reply must be, byte for byte, what one undisturbed server sends. The last line tells
how many were. Without root there are no networks of their own: then no link is cut, and the report says so.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import uvicorn
from starlette.types import Scope

from surefoot.fleet.failover import FleetAnswer
from surefoot.fleet.frames import ForwardedRequest
from surefoot.fleet.gateway import Gateway, forwarded_request
from surefoot.fleet.members import CONNECT_S, Member, Members
from surefoot.fleet.replica_transport import ReplicaTransport
from surefoot.fleet.request_names import PromptText
from surefoot.server import KeyEntry, add_key, hash_of, make_key
from surefoot.server.access.request_context import ReplyIdentity
from tests.fleet.failover import CHAT, CHAT_PATH, REQUESTS, STREAM, TOOL
from tests.fleet.network import Machine, NoNamespaces, machines
from tests.fleet.running import KEY, ask, by_choice, key_file
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

NUM_SERVERS = 3
NUM_BESIDE = 8  # streams beside the one that is watched
NUM_USERS = 20  # a user has a share of a server's queue
LONG_TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 300}}, "required": ["text"]}
LONG_TOOL = {**TOOL, "function": {"name": "find", "parameters": LONG_TEXT}}
LONG = {**CHAT, **STREAM, "max_tokens": 90}
ENDLESS = {**LONG, "ignore_eos": True}
# Kinds of streams that have at least 64 tokens whatever the model says.
WATCHED: dict[str, dict[str, Any]] = {
    "greedy": {**ENDLESS, "temperature": 0},
    "three answers": {**ENDLESS, "n": 3, "logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.7},
    "schema": {
        **LONG, "temperature": 1.2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": LONG_TEXT}},
    },
    "tools": {**LONG, "tools": [LONG_TOOL], "tool_choice": "required", "max_tokens": 120},
    "stop strings": {**ENDLESS, "stop": ["zq", "qqq"], "presence_penalty": 0.4, "temperature": 1.1},
    "bias": {**ENDLESS, "logit_bias": {"2": 5, "300": -50}, "min_tokens": 70, "temperature": 1.5, "logprobs": True},
}  # fmt: skip


@dataclass(frozen=True)
class SiegePlan:
    first: int = 1  # token position
    num_positions: int = 64  # the last one
    num_moments: int = 100
    num_streams: int = 200
    num_hangs: int = 3
    num_cuts: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Asking:
    """A client's request."""

    kind: str
    path: str
    body: bytes
    user: int


@dataclass
class SiegeReport:
    num_streams: int = 0
    num_identical: int = 0
    num_failovers: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    no_cuts: str = ""  # why no link was cut

    def line(self) -> str:
        struck = ", ".join(f"{count} {name}" for name, count in self.strikes.items())
        return (
            f"{self.num_streams} streams, {self.num_identical} identical, {self.num_failovers} failovers: {struck}"
            + (f"; no link was cut: {self.no_cuts}" if self.no_cuts else "")
        )


# ---- requests ----


def varied(kind: str, path: str, body: dict[str, Any], number: int) -> Asking:
    """The same kind of request with a prompt, and a seed if it has one, of its own."""

    def own(text: str) -> str:
        return f"{text}, and this is what happened to the {number}. of all the little birds in the wood"

    fresh = dict(body)
    if "messages" in body:
        fresh["messages"] = [{**message, "content": own(message["content"])} for message in body["messages"]]
    for name in {"prompt", "input"} & set(body):
        given = body[name]
        fresh[name] = own(given) if isinstance(given, str) else [own(text) for text in given]
    if "seed" in body:
        fresh["seed"] = number
    return Asking(kind, path, json.dumps(fresh).encode(), number % NUM_USERS)


def company(count: int) -> list[Asking]:
    """Streams and whole replies of every kind."""
    kinds = list(REQUESTS.items())
    return [varied(kind, *request, number) for number in range(count) for kind, request in [kinds[number % len(kinds)]]]


def identity_of(body: bytes) -> ReplyIdentity:
    """In place of what a gateway draws, so that the same request has the same reply."""
    digest = hashlib.blake2b(body, digest_size=16)
    return ReplyIdentity(digest.hexdigest(), 1_700_000_000, int.from_bytes(digest.digest()[:6], "little"))


def forwarded_as_always(scope: Scope, body: bytes) -> ForwardedRequest:
    return replace(forwarded_request(scope, body), identity=identity_of(body))


def answers_of(data: bytes) -> dict[int, list[bytes]]:
    """A reply by answers, its events or lines apart."""
    is_events = data.startswith((b"id:", b"event:", b"data:", b":"))
    return by_choice(data.split(b"\n\n") if is_events else data.splitlines())


# ---- the fleet ----


class Answers:
    """In place of the gateway's FleetAnswer: remembers the answer to each request, so that its server is known."""

    def __init__(self) -> None:
        self._by_body: dict[bytes, FleetAnswer] = {}

    def __call__(
        self, members: Members, request: ForwardedRequest, prompt: PromptText, user: str, stall_s: float
    ) -> FleetAnswer:
        self._by_body[request.body] = answer = FleetAnswer(members, request, prompt, user, stall_s)
        return answer

    def member(self, asking: Asking) -> Member:
        """The server that computes the answer now."""
        member = self._by_body[asking.body].member
        assert member is not None
        return member


@dataclass
class Site:
    """Where a server runs: it comes back to the same address."""

    machine: Machine | None
    address: str
    port: int
    server: Server

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"


def start_server(folder: Path, address: str, port: int, machine: Machine | None) -> Server:
    place = ("--port", str(port), "--keys", str(folder / "keys.toml"), "--fleet-key", str(folder / "fleet.key"))
    size = ("--max-running", "16", "--max-queue", "1000", "--pooling", "mean", "--threads", "1")
    return Server(stories_gguf(), *place, *size, host=address, group=machine)


class Fleet:
    def __init__(self, folder: Path, sites: list[Site], members: Members, gateway: Gateway, root: str) -> None:
        self._folder = folder
        self.sites = sites
        self.members = members
        self.gateway = gateway
        self.root = root
        self.answers = Answers()

    def site_of(self, asking: Asking) -> Site:
        return self.sites[self.members.all.index(self.answers.member(asking))]

    async def revive(self, site: Site) -> None:
        await asyncio.to_thread(site.server.stop)
        site.server = await asyncio.to_thread(start_server, self._folder, site.address, site.port, site.machine)

    async def whole(self, boots: Sequence[str]) -> None:
        """Until every server takes part; of a server that was killed, the new process."""
        end = time.monotonic() + PATIENCE_S
        while not all(
            member.is_ready and member.boot not in boots and not member.refusal for member in self.members.all
        ):
            assert time.monotonic() < end, "a server does not come back"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_fleet(folder: Path, places: Sequence[Machine | None]) -> AsyncIterator[Fleet]:
    sites: list[Site] = []
    try:
        for machine in places:
            address, port = ("127.0.0.1", free_port()) if machine is None else (machine.address, 8000)
            server = await asyncio.to_thread(start_server, folder, address, port, machine)
            sites.append(Site(machine, address, port, server))
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        client = httpx2.AsyncClient(transport=ReplicaTransport(), timeout=timeout, trust_env=False)
        members = Members([site.url for site in sites], KEY, client)
        gateway, port = Gateway(members), free_port()
        server = uvicorn.Server(uvicorn.Config(gateway, port=port, log_config=None, access_log=False, ws="none"))
        serving = asyncio.ensure_future(server.serve())
        fleet = Fleet(folder, sites, members, gateway, f"http://127.0.0.1:{port}")
        await fleet.whole(())
        with mock.patch("surefoot.fleet.gateway.FleetAnswer", fleet.answers):
            yield fleet
        server.should_exit = True
        await serving
    finally:
        for site in sites:
            site.server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- strikes ----

Heal = Callable[[], Awaitable[None]]
Strike = Callable[[Fleet, Site], Heal]


def kill(fleet: Fleet, site: Site) -> Heal:
    """The server starts again at once, while its streams go on elsewhere."""
    boot = fleet.members.all[fleet.sites.index(site)].boot
    site.server.process.send_signal(signal.SIGKILL)
    reviving = asyncio.ensure_future(fleet.revive(site))

    async def heal() -> None:
        await reviving
        await fleet.whole([boot])

    return heal


def hang(fleet: Fleet, site: Site) -> Heal:
    site.server.process.send_signal(signal.SIGSTOP)

    async def heal() -> None:
        site.server.process.send_signal(signal.SIGCONT)
        await fleet.whole(())

    return heal


def cut(fleet: Fleet, site: Site) -> Heal:
    assert site.machine is not None
    site.machine.cut()

    async def heal() -> None:
        assert site.machine is not None
        site.machine.mend()
        await fleet.whole(())

    return heal


# ---- the siege ----


class Siege:
    def __init__(self, plan: SiegePlan, fleet: Fleet, keys: list[str], wanted: dict[Asking, Any]) -> None:
        self._plan = plan
        self._fleet = fleet
        self._keys = keys
        self._wanted = wanted
        self._rng = random.Random(plan.seed)
        self._company = [asking for asking in wanted if not asking.kind.startswith("watched")]
        self._watched = [asking for asking in wanted if asking.kind.startswith("watched")]
        self._next = 0
        self.report = SiegeReport()

    async def run(self, can_cut: bool) -> None:
        began = time.monotonic()
        for _ in range(2):  # undisturbed: how long it takes
            await asyncio.gather(*map(self._stream, self._beside()))
        wave_s = (time.monotonic() - began) / 2
        for position in range(self._plan.first, self._plan.num_positions + 1):
            await self._at_position("kills at a position", kill, position)
            say(f"killed at position {position} of {self._plan.num_positions}")
        for number in range(self._plan.num_moments):
            await self._at_moment(self._rng.uniform(0, wave_s))
            say(f"killed at {number + 1} of {self._plan.num_moments} random moments")
        for _ in range(self._plan.num_hangs):
            await self._at_position("hangs", hang, self._rng.randint(1, 60))
        for _ in range(self._plan.num_cuts if can_cut else 0):
            await self._at_position("cuts", cut, self._rng.randint(1, 60))
        say("all streams at once")
        await self._all_at_once()
        self.report.num_failovers = self._fleet.gateway.num_failovers

    async def _at_position(self, name: str, strike: Strike, position: int) -> None:
        """Strike the server that has the watched stream, once this many of its tokens have come."""
        watched = self._watched[position % len(self._watched)]
        heals: list[Heal] = []

        def on_event(count: int) -> None:
            if count == position:
                heals.append(strike(self._fleet, self._fleet.site_of(watched)))

        streams = [self._stream(asking) for asking in self._beside()]
        await asyncio.gather(self._stream(watched, on_event), *streams)
        if not heals:
            self.report.faults.append(f"{watched.kind} has no position {position}")
        await self._heal(name, heals)

    async def _at_moment(self, after_s: float) -> None:
        streams = [asyncio.ensure_future(self._stream(asking)) for asking in self._beside()]
        await asyncio.sleep(after_s)
        heals = [kill(self._fleet, self._rng.choice(self._fleet.sites))]
        await asyncio.gather(*streams)
        await self._heal("kills at a random moment", heals)

    async def _all_at_once(self) -> None:
        """Every stream, and one server after the other killed, each when the one before is back."""
        streams = asyncio.ensure_future(asyncio.wait([asyncio.ensure_future(self._stream(a)) for a in self._wanted]))
        for site in self._fleet.sites:
            await asyncio.sleep(1.0)
            if not streams.done():
                await self._heal("kills among all streams", [kill(self._fleet, site)])
        await streams

    async def _heal(self, name: str, heals: list[Heal]) -> None:
        for heal in heals:
            await heal()
            self.report.strikes[name] = self.report.strikes.get(name, 0) + 1

    def _beside(self) -> list[Asking]:
        start, self._next = self._next, self._next + NUM_BESIDE
        return [self._company[(start + number) % len(self._company)] for number in range(NUM_BESIDE)]

    async def _stream(self, asking: Asking, on_event: Callable[[int], None] = lambda count: None) -> None:
        self.report.num_streams += 1
        try:
            status, data = await self._reply(asking, on_event)
        except (httpx2.HTTPError, TimeoutError) as error:
            self.report.faults.append(f"{asking.kind}: {type(error).__name__} {error}: {asking.body!r}")
            return
        if status == 200 and answers_of(data) == self._wanted[asking]:
            self.report.num_identical += 1
        else:
            self.report.faults.append(f"{asking.kind}: status {status}, {_differing(data, self._wanted[asking])}")

    async def _reply(self, asking: Asking, on_event: Callable[[int], None]) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {self._keys[asking.user]}", "content-type": "application/json"}
        url, data, count = self._fleet.root + asking.path, bytearray(), 0
        async with (
            asyncio.timeout(PATIENCE_S),
            httpx2.AsyncClient(timeout=None, trust_env=False) as client,
            client.stream("POST", url, content=asking.body, headers=headers) as reply,
        ):
            async for piece in reply.aiter_raw():
                data += piece
                for _ in re.findall(rb'"choices":\[\{"index":0', piece):
                    count += 1
                    on_event(count)
        return reply.status_code, bytes(data)


def _differing(data: bytes, wanted: dict[int, list[bytes]]) -> str:
    parts = answers_of(data)
    for number, answer in wanted.items():
        given = parts.get(number, [])
        for place, part in enumerate(answer):
            if given[place : place + 1] != [part]:
                return f"answer {number}, part {place}: {given[place : place + 1]!r} is not {part!r}"
    return f"{len(data)} bytes more than wanted: {data[-300:]!r}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def undisturbed(folder: Path, askings: Sequence[Asking], keys: list[str]) -> dict[Asking, Any]:
    """What one server replies, to one request at a time."""
    server = await asyncio.to_thread(start_server, folder, "127.0.0.1", 0, None)
    wanted: dict[Asking, Any] = {}
    try:
        for asking in askings:
            headers = (
                ("host", "127.0.0.1"), ("content-type", "application/json"),
                ("authorization", f"Bearer {keys[asking.user]}"), ("content-length", str(len(asking.body))),
            )  # fmt: skip
            request = ForwardedRequest("POST", asking.path, "", headers, asking.body, identity_of(asking.body))
            status, parts, num_failovers = await ask([server], request)
            assert (status, num_failovers) == (200, 0), (asking, parts)
            wanted[asking] = answers_of(b"".join(parts))
    finally:
        server.stop()
    return wanted


async def besiege(plan: SiegePlan, folder: Path, places: Sequence[Machine | None]) -> SiegeReport:
    key_file(folder)
    keys = [make_key() for _ in range(NUM_USERS)]
    for number, key in enumerate(keys):
        add_key(folder / "keys.toml", KeyEntry(hash=hash_of(key), user=f"user-{number}"))
    watched = [
        varied(f"watched: {kind}", CHAT_PATH, {**body, "seed": 0}, 1000 + number)
        for number, (kind, body) in enumerate(WATCHED.items())
    ]
    say("asking one server, undisturbed")
    wanted = await undisturbed(folder, [*company(plan.num_streams - len(watched)), *watched], keys)
    async with running_fleet(folder, places) as fleet:
        siege = Siege(plan, fleet, keys, wanted)
        await siege.run(can_cut=all(place is not None for place in places))
    return siege.report


def run_siege(plan: SiegePlan) -> SiegeReport:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surefoot-siege-")))
        places: Sequence[Machine | None] = [None] * NUM_SERVERS
        no_cuts = ""
        try:
            places = stack.enter_context(machines(NUM_SERVERS))
        except NoNamespaces as reason:
            no_cuts = str(reason)
        stack.enter_context(mock.patch("surefoot.fleet.gateway.forwarded_request", forwarded_as_always))
        report = asyncio.run(besiege(plan, folder, places))
    report.no_cuts = no_cuts
    return report


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in SiegePlan().__dict__.items():
        words.add_argument(f"--{name.removeprefix('num_')}", dest=name, type=int, default=value)
    report = run_siege(SiegePlan(**vars(words.parse_args())))
    for fault in report.faults:
        print(fault)
    print(report.line())
    return 0 if report.num_identical == report.num_streams and not report.faults else 1


if __name__ == "__main__":
    sys.exit(main())
