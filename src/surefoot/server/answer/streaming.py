"""Replies to clients that may disconnect, which ends their requests."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from surefoot.api.answers import RequestOutput
from surefoot.engine import Usage
from surefoot.server.access.request_context import StreamPosition
from surefoot.server.bodies import unless_gone
from surefoot.server.errors import ApiError
from surefoot.server.service import PromptProgress, RequestRun

BEAT_S = 5.0  # of silence, after which a stream shows that it lives
EVENTS = "text/event-stream; charset=utf-8"
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # so that proxies pass events on at once
]
MEMORY = "memory"
Beat = Callable[[], Awaitable[bytes]]
BEAT = "surefoot.beat"  # in a message of a body: the part depends on time, and belongs to no answer


class WholeAnswer(Protocol):
    """The answers to one request, in the form of an API."""

    run: RequestRun

    async def reply(self) -> dict[str, Any]:
        """The whole reply."""


class Answer(WholeAnswer, Protocol):
    """An answer that may be sent as a stream."""

    def events(self) -> AsyncIterator[bytes]:
        """The reply as a stream. Raises ApiError where it breaks off."""

    def failed(self, error: ApiError) -> bytes:
        """The last event of a stream that breaks off."""

    def beat(self, progress: PromptProgress) -> bytes:
        """The sign of life of a silent stream."""


async def send_answer(
    http: HttpRequest, answer: Answer, streams: bool | None, content_type: str | None = None
) -> Response:
    """content_type: of a stream; None: events."""
    run = answer.run
    if streams:
        beat = partial(run.beat, answer.beat)
        return EventStream(run, _until_error(answer), run.service.settings.read_s, content_type or EVENTS, beat)
    return await send_whole(http, answer)


async def send_whole(http: HttpRequest, answer: WholeAnswer) -> Response:
    return JSONResponse(await whole_reply(http, answer), headers=notice_headers(answer.run.notices))


async def _until_error(answer: Answer) -> AsyncGenerator[bytes, None]:
    """An error ends the stream as an event of its own, and is counted."""
    try:
        async for event in answer.events():
            yield event
    except ApiError as error:
        answer.run.service.metrics.refuse(error.status)
        yield answer.failed(error)


class EventStream(Response):
    """Sends events as they come. Closes the run when they end, when the client disconnects or when it stops reading."""

    def __init__(
        self,
        run: RequestRun | None,
        events: AsyncGenerator[bytes, None],
        read_s: float,
        content_type: str = EVENTS,
        beat: Beat | None = None,
    ) -> None:
        """run: None for events without a request in the engine. beat: what is sent after each BEAT_S of silence; None:
        nothing."""
        super().__init__()
        self._beat = beat
        self._sent_at = 0.0
        self._is_sending = False
        more = {"content-type": content_type, **notice_headers(run.notices if run is not None else ())}
        self._all_headers = [*HEADERS, *((name.lower().encode(), value.encode()) for name, value in more.items())]
        self._run = run
        self._events = events
        self._read_s = read_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(Exception):  # it can no longer be told to the client
                await unless_gone(receive, self._send(send))
        finally:
            await self._events.aclose()
            if self._run is not None:
                self._run.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._all_headers})
        beating = asyncio.ensure_future(self._beat_on(send))
        try:
            async for event in self._events:
                await self._send_part(send, event)
        finally:
            beating.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _send_part(self, send: Send, data: bytes, **more: Any) -> None:
        self._is_sending = True
        async with asyncio.timeout(self._read_s):
            await send({"type": "http.response.body", "body": data, "more_body": True, **more})
        self._sent_at, self._is_sending = time.monotonic(), False

    async def _beat_on(self, send: Send) -> None:
        self._sent_at = time.monotonic()
        while self._beat is not None:
            await asyncio.sleep(max(0.0, self._sent_at + BEAT_S - time.monotonic()))
            if time.monotonic() < self._sent_at + BEAT_S:
                continue
            data = await self._beat()
            if data and not self._is_sending:
                await self._send_part(send, data, **{BEAT: True})
            self._sent_at = time.monotonic()


def notice_headers(notices: Sequence[str]) -> dict[str, str]:
    """A Warning header with the parts of the request that were not honoured. Clients that ignore it are not
    disturbed."""
    return {"Warning": ", ".join(f'299 surefoot "{notice}"' for notice in notices)} if notices else {}


async def whole_reply(http: HttpRequest, answer: WholeAnswer) -> dict[str, Any]:
    """The reply, after which the run is closed. Raises ClientGone if the client disconnects first."""
    try:
        return await unless_gone(http.receive, answer.reply())
    finally:
        answer.run.close()


class ChunkTemplate:
    """Writes chunks that differ only in their choices and usage: the rest is serialised once."""

    def __init__(self, head: dict[str, Any], usage: bool) -> None:
        """usage: every chunk has this field, null in all but the last."""
        self._head = json.dumps(head, separators=(",", ":"))[:-1]
        self._tail = ',"usage":null}' if usage else "}"

    def event(self, choice: dict[str, Any], position: StreamPosition) -> bytes:
        text = json.dumps(choice, separators=(",", ":"))
        return f'id: {position}\ndata: {self._head},"choices":[{text}]{self._tail}\n\n'.encode()

    def last(self, usage: dict[str, Any], position: StreamPosition) -> bytes:
        text = json.dumps(usage, separators=(",", ":"))
        return f'id: {position}\ndata: {self._head},"choices":[],"usage":{text}}}\n\n'.encode()


def comment(progress: PromptProgress) -> bytes:
    """A comment, which clients pass over, that tells how far the prompt has come."""
    return f": prompt {progress.processed}/{progress.total}\n\n".encode()


def failed_event(error: ApiError) -> bytes:
    """The end of a stream of OpenAI's form that breaks off."""
    return event(error.as_openai())


def event(data: Any, name: str | None = None) -> bytes:
    lines = [] if name is None else [f"event: {name}"]
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return ("\n".join([*lines, f"data: {text}"]) + "\n\n").encode()


DONE = event("[DONE]")


def reply_head(run: RequestRun, prefix: str, kind: str) -> dict[str, Any]:
    """The fields that OpenAI's replies and chunks begin with. prefix: of the id."""
    return {
        "id": f"{prefix}-{run.position.request}",
        "object": kind,
        "created": run.position.created,
        "model": run.service.settings.model_name,
        "system_fingerprint": run.service.fingerprint,
    }


def finish_fields(reason: str | None, has_calls: bool = False) -> dict[str, Any]:
    """A choice's fields. OpenAI has no reason for lack of memory: the finish_reason is `length`, and `stop_reason` says
    that the machine, not the request, set the limit."""
    if reason == MEMORY:
        return {"finish_reason": "length", "stop_reason": MEMORY}
    return {"finish_reason": "tool_calls" if has_calls and reason == "stop" else reason}


def is_cut(reason: str | None) -> bool:
    """Whether the answer was cut off before its end."""
    return reason in ("length", MEMORY)


def _predicted(usages: Sequence[Usage]) -> dict[str, int]:
    """Tokens that were guessed ahead, under OpenAI's names."""
    drafted, accepted = sum(usage.num_drafted for usage in usages), sum(usage.num_accepted for usage in usages)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}


def usage_of(run: RequestRun, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """timings_ms: of the slowest, so that they add up to what the client waited."""
    prompt = sum(output.usage.num_prompt for output in outputs)
    generated = sum(output.usage.num_generated for output in outputs)
    slowest = max((output.timings for output in outputs), key=lambda timings: timings.total)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(output.usage.num_cached for output in outputs)},
        "completion_tokens_details": _predicted([output.usage for output in outputs]),
        "timings_ms": {
            "queue": round(slowest.queued * 1000, 3),
            "prefill": round((slowest.to_first_token - slowest.queued) * 1000, 3),
            "decode": round((slowest.total - slowest.to_first_token) * 1000, 3),
        },
        **run.more_usage,
    }
