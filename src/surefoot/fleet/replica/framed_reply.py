"""A reply to a gateway: in frames, with signs of life."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.api.answers import SentToken
from surefoot.fleet.frames import ForwardedRequest, FrameKind, encode_frame, encode_tokens, json_frame
from surefoot.fleet.replica.request import HeldPrompts, ReplicaRequest
from surefoot.server.answer.streaming import BEAT

ALIVE_S = 0.5  # between signs of life

Alive = Callable[[], float | None]  # after how many seconds of silence a gateway may give up; None: already


class FramedReply:
    """The application's reply to a forwarded request, in frames: tokens first, then the bytes that they make."""

    def __init__(
        self,
        app: ASGIApp,
        alive: Alive,
        receive: Receive,
        send: Send,
        message: ForwardedRequest,
        held: HeldPrompts | None,
    ) -> None:
        self._app = app
        self._alive = alive
        self._receive = receive
        self._send = send
        self._message = message
        self._request = ReplicaRequest(message, self._tell, held)
        self._num_skipped = message.num_skipped
        self._body: bytes | None = message.body
        self._pending = bytearray()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()

    async def run(self, scope: Scope) -> None:
        headers = [(b"content-type", b"application/octet-stream"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        living = asyncio.ensure_future(self._live())
        try:
            await self._app(self._inner_scope(scope), self._inner_receive, self._inner_send)
        finally:
            living.cancel()
            with suppress(asyncio.CancelledError):
                await living
        await self._send({"type": "http.response.body", "body": bytes(self._pending) + self._last_frame()})

    def _last_frame(self) -> bytes:
        request = self._request
        if request.return_reason:
            return json_frame(FrameKind.RETURNED, [request.return_reason, request.is_unmatched])
        if request.is_charged:
            return json_frame(FrameKind.END, [request.num_requests, request.num_tokens])
        return encode_frame(FrameKind.END, b"")

    def _inner_scope(self, scope: Scope) -> Scope:
        message = self._message
        return {
            **scope,
            "method": message.method,
            "path": message.path,
            "raw_path": message.path.encode(),
            "query_string": message.query.encode(),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in message.headers],
            "state": {**scope.get("state", {}), "forwarded": self._request},
        }

    async def _inner_receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    async def _inner_send(self, message: Message) -> None:
        if self._request.return_reason:
            return
        if message["type"] == "http.response.start":
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self._pending += json_frame(FrameKind.HEAD, [message["status"], headers])
        elif body := message.get("body", b""):
            # Parts, not bytes: the last event of a stream has times, which differ in length.
            if message.get(BEAT):
                self._pending += encode_frame(FrameKind.BEAT, body)
            elif self._num_skipped:
                self._num_skipped -= 1
            else:
                self._pending += encode_frame(FrameKind.BODY, body)
        await self._flush()

    def _tell(self, tokens: list[SentToken]) -> None:
        self._pending += json_frame(FrameKind.TOKENS, encode_tokens(tokens))
        self._wake.set()

    async def _live(self) -> None:
        """Send tokens that no bytes follow soon, and signs of life."""
        while True:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), ALIVE_S)
            except TimeoutError:
                if (patience_s := self._alive()) is not None:
                    self._pending += json_frame(FrameKind.ALIVE, patience_s)
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            if data := bytes(self._pending):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                del self._pending[: len(data)]  # only now: a cancelled sending has sent nothing
