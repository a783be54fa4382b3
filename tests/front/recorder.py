"""An upstream on loopback that records every byte it gets, and answers as the path asks: right, late, broken or not."""

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

ANSWER = {"object": "chat.completion", "model": "elsewhere", "choices": [{"message": {"content": "from elsewhere"}}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
LAST = b'data: {"choices": [], "usage": %s}\n\n' % json.dumps(USAGE).encode()
EVENT = b'data: {"choices": [{"delta": {"content": "from elsewhere"}}]}\n\n'
MODES = ("good", "busy", "broken", "moved", "reset", "cut", "silent", "packed", "empty", "page")


@dataclass(frozen=True)
class ReceivedRequest:
    mode: str
    head: bytes
    body: bytes


@dataclass
class Recorder:
    on_request: Callable[[ReceivedRequest], object] = lambda received: None
    port: int = 0
    num_bytes: Counter[str] = field(default_factory=Counter)  # by mode
    requests: list[ReceivedRequest] = field(default_factory=list)

    def url(self, mode: str) -> str:
        return f"http://127.0.0.1:{self.port}/{mode}/v1"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Recorder"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._answer(await self._read(reader), writer):
                await writer.drain()
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> ReceivedRequest:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(length.partition(b":")[2]))
        received = ReceivedRequest(head.split(b"/")[1].decode(), head, body)
        self.num_bytes[received.mode] += len(head) + len(body)
        self.requests.append(received)
        self.on_request(received)
        return received

    async def _answer(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays."""
        mode, is_stream = received.mode, bool(json.loads(received.body).get("stream"))
        given = json.loads(received.body)
        whole = json.dumps({**ANSWER, "usage": USAGE}).encode()
        told = LAST if (given.get("stream_options") or {}).get("include_usage") else b""
        if mode == "silent":
            await asyncio.sleep(3600)
        if mode in ("reset", "cut"):
            kind = "text/event-stream" if is_stream else "application/json"
            part = _reply(200, EVENT if is_stream else whole, kind, more=100) if mode == "cut" else b""
            writer.write(part)
            await writer.drain()
            if part:
                await asyncio.sleep(0.01)  # so that the reset does not overtake it
            linger: socket.socket = writer.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        replies: dict[str, bytes] = {
            "good": _reply(200, EVENT + told + b"data: [DONE]\n\n", "text/event-stream")
            if is_stream
            else _reply(200, whole),
            "busy": _reply(429, whole),
            "broken": _reply(503, whole),
            "moved": _reply(307, b"", more_head=f"location: {self.url('good')}/chat/completions\r\n"),
            "packed": _reply(200, whole, more_head="content-encoding: gzip\r\n"),
            "empty": _reply(200, b""),
            "page": _reply(200, b"<html>", "text/html"),
        }
        writer.write(replies[mode])
        return True


def _reply(status: int, body: bytes, kind: str = "application/json", more: int = 0, more_head: str = "") -> bytes:
    """more: bytes that are announced and do not come."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body) + more}\r\n"
    return f"{head}set-cookie: seen=1\r\nx-surefoot-confidence: {{\r\n{more_head}\r\n".encode() + body
