"""What a fleet's gateway and its servers say to each other: a request with its history, and a reply in frames.

A request is the length of its head (4 bytes), the head as JSON, then the client's body. A frame is its kind (1 byte),
the length of its payload (4 bytes) and the payload. Everything but bodies is JSON; floats keep every bit in it.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from surefoot.api.continuation import SentToken
from surefoot.sampling import TokenLogprobs
from surefoot.server.handover import ReplyIdentity

ANSWER_PATH, STATE_PATH = "/fleet/answer", "/fleet/state"
KEY_HEADER = "x-surefoot-fleet"
MOST_HEAD_BYTES = 64 << 20
MOST_FRAME_BYTES = 64 << 20
_HEAD = struct.Struct(">I")
_FRAME = struct.Struct(">cI")

Headers = tuple[tuple[str, str], ...]


class FrameKind(Enum):
    HEAD = b"h"  # status and headers of the reply
    TOKENS = b"t"  # tokens whose bytes may follow
    BODY = b"b"  # bytes of the reply
    ALIVE = b"a"  # the engine takes its steps; how long a silence means that it does not
    END = b"e"  # the reply is complete
    RETURNED = b"r"  # another server must go on


class ReplicaState(BaseModel):
    """What a gateway chooses a server by."""

    boot: str  # differs after a restart
    identity: str  # of the model file and the arithmetic
    is_draining: bool
    patience_s: float | None  # how long a silence is no death; None: the engine is stuck
    backlog_tokens: int
    token_ms: float


@dataclass(frozen=True)
class HandedRequest:
    """A client's request with what was sent of its answer."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    identity: ReplyIdentity
    sent: tuple[SentToken, ...] = ()
    num_skipped: int = 0  # parts of the reply's body that the client has; an event of a stream is one part
    is_patient: bool = False  # a line of a batch: no client waits for its answer

    def encode(self) -> bytes:
        identity = self.identity
        head = {
            "method": self.method, "path": self.path, "query": self.query, "headers": self.headers,
            "identity": [identity.request, identity.created, identity.seed],
            "sent": encode_tokens(self.sent), "skipped": self.num_skipped, "patient": self.is_patient,
        }  # fmt: skip
        text = json.dumps(head, separators=(",", ":")).encode()
        return _HEAD.pack(len(text)) + text + self.body

    @classmethod
    def decode(cls, data: bytes) -> "HandedRequest":
        """Raises ValueError if it is malformed."""
        try:
            (length,) = _HEAD.unpack_from(data)
            head = json.loads(data[_HEAD.size : _HEAD.size + length])
            request, created, seed = head["identity"]
            return cls(
                str(head["method"]), str(head["path"]), str(head["query"]),
                tuple((str(name), str(value)) for name, value in head["headers"]), data[_HEAD.size + length :],
                ReplyIdentity(str(request), int(created), int(seed)),
                tuple(decode_tokens(head["sent"])), int(head["skipped"]), bool(head["patient"]),
            )  # fmt: skip
        except (struct.error, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not a request of a gateway: {error}") from error


def encode_tokens(tokens: Sequence[SentToken]) -> list[list[Any]]:
    return [
        [answer, token] if logprobs is None else [answer, token, logprobs.logprob, logprobs.top]
        for answer, token, logprobs in tokens
    ]


def decode_tokens(items: Sequence[Sequence[Any]]) -> Iterator[SentToken]:
    for answer, token, *more in items:
        logprobs = None
        if more:
            top = tuple((int(other), float(logprob)) for other, logprob in more[1])
            logprobs = TokenLogprobs(int(token), float(more[0]), top)
        yield SentToken(int(answer), int(token), logprobs)


def encode_frame(kind: FrameKind, payload: bytes) -> bytes:
    return _FRAME.pack(kind.value, len(payload)) + payload


def json_frame(kind: FrameKind, value: Any) -> bytes:
    return encode_frame(kind, json.dumps(value, separators=(",", ":")).encode())


class FrameReader:
    """Cuts bytes, as they arrive, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """The frames that are complete. Raises ValueError if the bytes are none."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            kind, length = _FRAME.unpack_from(self._buffer)
            if length > MOST_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._buffer) < _FRAME.size + length:
                return
            payload = bytes(self._buffer[_FRAME.size : _FRAME.size + length])
            del self._buffer[: _FRAME.size + length]
            yield FrameKind(kind), payload
