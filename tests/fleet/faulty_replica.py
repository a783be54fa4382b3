"""A replica that answers with the bytes that a test gives it: a real server cannot be made to send these."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from surefoot.fleet.frames import ANSWER_PATH, STATE_PATH, FrameKind, encode_frame, json_frame
from surefoot.fleet.leases import LEASES_PATH

STATE: dict[str, Any] = {
    "boot": "b", "started": 1.0, "identity": "same", "is_draining": False, "patience_s": 2.0, "backlog_tokens": 0,
    "token_ms": 1.0,
}  # fmt: skip
LEASES = {"limits": "", "per_minute": {}, "grants": {}}
HEAD = json_frame(FrameKind.HEAD, [200, [["content-type", "text/event-stream"]]])
BODY = b"data: the answer\n\n"
# A reply as a healthy server sends it.
WHOLE = [
    HEAD, json_frame(FrameKind.TOKENS, [[0, 5]]), encode_frame(FrameKind.BODY, BODY),
    json_frame(FrameKind.TOKENS, [[0, 6, -0.5, [[6, -0.5], [7, -1.5]]]]), json_frame(FrameKind.ALIVE, 2.0),
    encode_frame(FrameKind.BODY, BODY), json_frame(FrameKind.END, [1.0, 2.0]),
]  # fmt: skip


def http_reply(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


class FaultyReplica:
    """Listens on a port of its own. frames: its reply; it leaves out parts that the client has, as a server does."""

    def __init__(self, frames: list[bytes], state: dict[str, Any] | bytes = STATE, leases: bytes | None = None) -> None:
        self.frames = frames
        self.state = state if isinstance(state, bytes) else json.dumps(state).encode()
        self.leases = json.dumps(LEASES).encode() if leases is None else leases
        self.raw: bytes | None = None  # in place of a reply of HTTP
        self.repeats: tuple[bytes, float] | None = None  # sent after the frames for ever, and seconds between two
        self.num_asked = 0
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "FaultyReplica":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies: dict[str, Callable[[], bytes]] = {
            STATE_PATH: lambda: http_reply(self.state), LEASES_PATH: lambda: http_reply(self.leases),
        }  # fmt: skip
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                path = head.split(b" ")[1].decode().partition("?")[0]
                if path == ANSWER_PATH:
                    await self._answer(body, writer)
                else:
                    writer.write(replies[path]())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.num_asked += 1
        if self.raw is not None:
            writer.write(self.raw)
            return
        asked = json.loads(body[4 : 4 + int.from_bytes(body[:4], "big")])
        frames, num_skipped = list[bytes](), asked["skipped"]
        for frame in self.frames:
            is_known = frame[:1] == FrameKind.BODY.value and num_skipped > 0
            num_skipped -= is_known
            frames += [] if is_known else [frame]
        if self.repeats is None:
            writer.write(http_reply(b"".join(frames)))
            return
        piece, seconds = self.repeats
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for data in [b"".join(frames)] if frames else []:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        while True:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(seconds)
