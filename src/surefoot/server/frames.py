"""What a fleet's gateway and its servers say to each other: a request with its history, and a reply in frames.

A request is the length of its head (4 bytes), the head as JSON, then the client's body. A frame is its kind (1 byte),
the length of its payload (4 bytes) and the payload. Everything but bodies is JSON; floats keep every bit in it.

A server asks another for blocks by a model's id, a namespace's id and the blocks' names. The answer is their number (4
bytes) and their records, as they are on disk.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from surefoot.api.continuation import SentToken
from surefoot.disk_cache import DIGEST_BYTES, ID_BYTES
from surefoot.engine import BlockQuestion
from surefoot.sampling import TokenLogprobs
from surefoot.server.handover import PrefixHint, ReplyIdentity

ANSWER_PATH, STATE_PATH, BLOCKS_PATH = "/fleet/answer", "/fleet/state", "/fleet/blocks"
KEY_HEADER = "x-surefoot-fleet"
MOST_HEAD_BYTES = 64 << 20
MOST_FRAME_BYTES = 64 << 20
MOST_ASKED_BLOCKS = 16_384
MOST_QUESTION_BYTES = 2 * ID_BYTES + MOST_ASKED_BLOCKS * DIGEST_BYTES
COUNT_BYTES = 4
_HEAD = struct.Struct(">I")
_FRAME = struct.Struct(">cI")

Headers = tuple[tuple[str, str], ...]


class FrameKind(Enum):
    HEAD = b"h"  # status and headers of the reply
    TOKENS = b"t"  # tokens whose bytes may follow
    BODY = b"b"  # bytes of the reply
    ALIVE = b"a"  # the engine takes its steps; how long a silence means that it does not
    END = b"e"  # the reply is complete; what it used of the client's rates, if the gateway charges these
    RETURNED = b"r"  # another server must go on


class NameChanges(BaseModel):
    """Names of blocks of text that a server holds since a gateway's last report, or no longer."""

    number: int  # of the last change; the next report begins after it
    is_whole: bool = False  # all names that it holds: names that were known before are void
    added: list[int] = []
    removed: list[int] = []


class ReplicaState(BaseModel):
    """What a gateway chooses a server by."""

    boot: str  # differs after a restart
    started: float | None = None  # Unix time; None: a server that keeps no rates
    identity: str  # of the model file and the arithmetic
    is_draining: bool
    patience_s: float | None  # how long a silence is no death; None: the engine is stuck
    backlog_tokens: int
    token_ms: float
    fetch_ms: float | None = None  # until another server's first block comes; None: it fetches none
    fetch_token_ms: float = 0.0  # predicted time to fetch the keys and values of a token
    names: NameChanges | None = None  # None: it does not say what it holds


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
    hint: PrefixHint | None = None  # another server that holds more of the prompt
    names: tuple[int, ...] = ()  # of the blocks of text of its prompt
    share: float = 1.0  # of the user's requests that are at this server: their weight is multiplied by it
    is_charged: bool = False  # to the client's rates, by the gateway

    def encode(self) -> bytes:
        identity = self.identity
        head = {
            "method": self.method, "path": self.path, "query": self.query, "headers": self.headers,
            "identity": [identity.request, identity.created, identity.seed],
            "sent": encode_tokens(self.sent), "skipped": self.num_skipped, "patient": self.is_patient,
            "names": self.names, "share": self.share, "charged": self.is_charged,
            "hint": None if self.hint is None else [self.hint.url, self.hint.num_tokens],
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
                None if head.get("hint") is None else PrefixHint(str(head["hint"][0]), int(head["hint"][1])),
                tuple(map(int, head.get("names", ()))), _share(head.get("share", 1.0)),
                bool(head.get("charged", False)),
            )  # fmt: skip
        except (struct.error, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not a request of a gateway: {error}") from error


def _share(value: Any) -> float:
    if not 0 < (share := float(value)) <= 1:
        raise ValueError(f"a share of {share}")
    return share


def encode_question(question: BlockQuestion) -> bytes:
    return b"".join((question.model, question.namespace, *question.digests[:MOST_ASKED_BLOCKS]))


def decode_question(data: bytes) -> BlockQuestion:
    """Raises ValueError if it is malformed."""
    start = 2 * ID_BYTES
    if len(data) < start or (len(data) - start) % DIGEST_BYTES or len(data) > MOST_QUESTION_BYTES:
        raise ValueError("not a question for blocks")
    digests = tuple(data[first : first + DIGEST_BYTES] for first in range(start, len(data), DIGEST_BYTES))
    return BlockQuestion(data[:ID_BYTES], data[ID_BYTES:start], digests)


def encode_count(number: int) -> bytes:
    return _HEAD.pack(number)


def decode_count(data: bytes) -> int:
    (number,) = _HEAD.unpack(data)
    return int(number)


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
