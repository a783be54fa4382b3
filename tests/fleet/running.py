"""Real servers of a fleet, a gateway's own parts in this process, and connections that break where a test wants it."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from surefoot.fleet.failover import FleetAnswer, ReplyHead
from surefoot.fleet.frames import ANSWER_PATH, ForwardedRequest, FrameKind, FrameReader, encode_frame
from surefoot.fleet.members import Members
from surefoot.fleet.request_names import PromptText
from surefoot.server.access.request_context import ReplyIdentity
from tests.cli.process import COMMAND
from tests.server.process import Server
from tests.stories import stories_gguf

IDENTITY = ReplyIdentity("ab" * 16, 1_700_000_000, 4711)
KEY = "the key of this fleet"
# What depends on the machine and the moment.
_MOMENTS = [
    (rb'"(timings_ms|timings)":\{[^}]*\}', rb'"\1":0'),
    (rb'"created_at":"[^"]*"', b'"created_at":0'),
    (rb'"(\w+_duration|\w*cached_tokens|tokens_cached|cache_read_input_tokens|input_tokens)":\d+', rb'"\1":0'),
    (rb'"(accepted|rejected)_prediction_tokens":\d+', rb'"\1":0'),
]


def key_file(folder: Path) -> Path:
    file = folder / "fleet.key"
    file.write_text(KEY + "\n")
    return file


def start_replica(folder: Path, *words: str, command: Sequence[str] = COMMAND) -> Server:
    options = ("--fleet-key", str(key_file(folder)), "--max-running", "8", "--pooling", "mean", "--threads", "1")
    return Server(stories_gguf(), *options, *words, command=command)


def start_gateway(
    servers: Sequence[Server], folder: Path, *words: str, host: str = "127.0.0.1", num_files: int | None = None
) -> Server:
    place = (*(server.root for server in servers), "--fleet-key", str(key_file(folder)))
    return Server(None, *place, *words, verb=("fleet", "gateway"), host=host, num_files=num_files)


def num_ready(gateway: Server) -> int:
    """Servers that take part."""
    return int(httpx2.get(f"{gateway.root}/ready").json()["ready"])


def forwarded(path: str, body: dict[str, Any]) -> ForwardedRequest:
    data = httpx2.Request("POST", "http://x", json=body).content
    headers = (("host", "127.0.0.1"), ("content-type", "application/json"), ("content-length", str(len(data))))
    return ForwardedRequest("POST", path, "", headers, data, IDENTITY)


def by_choice(parts: list[bytes]) -> dict[int, list[bytes]]:
    """The parts of each answer, in order, and all others as answer -1. In which order the parts of several answers come
    depends on the schedule, and with it the position in their ids."""
    answers: dict[int, list[bytes]] = {}
    for part in parts:
        for pattern, value in _MOMENTS:
            part = re.sub(pattern, value, part)
        choice = re.search(rb'"choices":\[\{"index":(\d+)', part) if part.startswith(b"id: ") else None
        number = -1 if choice is None else int(choice[1])
        answers.setdefault(number, []).append(part if choice is None else re.sub(rb"^id: .*", b"", part))
    return answers


AFTER_HEAD = -1


class BreakingTransport(httpx2.AsyncBaseTransport):
    """Breaks a connection after the given number of frames with tokens, of each reply in turn; None: never."""

    def __init__(self, breaks: list[int | None]) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._breaks = iter(breaks)
        self.num_replies = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path != ANSWER_PATH:
            return response
        self.num_replies += 1
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=_Breaking(response, next(self._breaks, None))
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Breaking(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, limit: int | None) -> None:
        self._response = response
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reader, count = FrameReader(), 0
        async for data in self._response.aiter_raw():
            for kind, payload in reader.feed(data):
                if kind is FrameKind.TOKENS:
                    if count == self._limit:
                        raise httpx2.ReadError("broken by the test")
                    count += 1
                yield encode_frame(kind, payload)
                if kind is FrameKind.HEAD and self._limit == AFTER_HEAD:
                    raise httpx2.ReadError("broken by the test")

    async def aclose(self) -> None:
        await self._response.aclose()


async def ask(
    servers: list[Server],
    request: ForwardedRequest,
    breaks: list[int | None] | None = None,
    on_part: Callable[[int, "Members", "FleetAnswer"], None] = lambda number, members, answer: None,
) -> tuple[int, list[bytes], int]:
    """Status, parts of the body, and how often the request went on elsewhere."""
    transport = BreakingTransport(breaks or [])
    async with httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(None, connect=2.0)) as client:
        members = Members([server.root for server in servers], KEY, client)
        await members.meet()
        watching = asyncio.ensure_future(members.watch())
        answer = FleetAnswer(members, request, PromptText.of(request.body, ""))
        status, parts = 0, []
        try:
            async for part in answer.parts():
                if isinstance(part, ReplyHead):
                    status = part.status
                else:
                    parts.append(part)
                    on_part(len(parts), members, answer)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    return status, parts, answer.num_failovers


def answer_of(
    servers: list[Server], request: ForwardedRequest, breaks: list[int | None] | None = None
) -> tuple[list[bytes], int]:
    status, parts, num_failovers = asyncio.run(ask(servers, request, breaks))
    assert status == 200, parts
    return by_choice(parts), num_failovers


def kill(server: Server, how: signal.Signals = signal.SIGKILL) -> None:
    server.process.send_signal(how)
