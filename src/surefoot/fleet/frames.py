"""What a fleet's gateway and its servers say to each other: a request with its history, and a reply in frames.

A request is the length of its head (4 bytes), the head as JSON, then the client's body. A frame is its kind (1 byte),
the length of its payload (4 bytes) and the payload. Everything but bodies is JSON; floats keep every bit in it.
Neither side trusts the other: each value has a type and bounds, and what is outside of them is a ValueError.

A server asks another for blocks by a model's id, a namespace's id and the blocks' names. The answer is their number (4
bytes) and their records, as they are on disk.
"""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from surefoot.api.answers import SentToken
from surefoot.cache import BlockQuestion
from surefoot.disk_cache import DIGEST_BYTES, ID_BYTES
from surefoot.sampling import TokenLogprobs
from surefoot.server.access.request_context import ReplyIdentity

ANSWER_PATH, STATE_PATH, BLOCKS_PATH = "/fleet/answer", "/fleet/state", "/fleet/blocks"
KEY_HEADER = "x-surefoot-fleet"
MOST_HEAD_BYTES = 64 << 20
MOST_PATIENCE_S = 300.0  # of a gateway with a silent server
MOST_STATE_BYTES = 4 << 20
MOST_NAMES = 4096  # of a request's prompt
MOST_HELD_NAMES = 1 << 17  # in one report
MOST_ASKED_BLOCKS = 16_384
MOST_QUESTION_BYTES = 2 * ID_BYTES + MOST_ASKED_BLOCKS * DIGEST_BYTES
COUNT_BYTES = 4
_HEAD = struct.Struct(">I")
_FRAME = struct.Struct(">cI")

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Name = Annotated[int, Field(ge=0, lt=1 << 64)]  # of a block of text
Names = Annotated[list[Name], Field(max_length=MOST_HELD_NAMES, fail_fast=True)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Patience = Annotated[float, Field(gt=0, le=MOST_PATIENCE_S)]
Used = Annotated[float, Field(ge=0, le=1e12)]
ShortText = Annotated[str, Field(max_length=256)]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", max_length=64 << 10)]
HeaderValue = Annotated[str, Field(pattern=r"^[\t\x20-\x7e\x80-\xff]*$", max_length=64 << 10)]
Headers = Annotated[tuple[tuple[HeaderName, HeaderValue], ...], Field(max_length=128)]
TokenTop = tuple[Index, Annotated[float, Field(allow_inf_nan=True)]]
# Answer and token; of a request for logprobs, also the token's and the most likely ones.
TokenItem = tuple[Index, Index] | tuple[Index, Index, Annotated[float, Field(allow_inf_nan=True)], list[TokenTop]]
TokenItems = Annotated[list[TokenItem], Field(fail_fast=True)]


class FrameKind(Enum):
    HEAD = b"h"  # status and headers of the reply
    TOKENS = b"t"  # tokens whose bytes may follow
    BODY = b"b"  # bytes of the reply
    BEAT = b"s"  # bytes of the reply that show life: they depend on time, so that they are not counted as a part
    ALIVE = b"a"  # the engine takes its steps; how long a silence means that it does not
    END = b"e"  # the reply is complete; what it used of the client's rates, if the gateway charges these
    RETURNED = b"r"  # another server must go on


# By the byte that a frame begins with: its kind, and the most bytes of its payload.
FRAMES = {
    kind.value: (kind, 64 << 20 if kind is FrameKind.BODY else 256 << 10 if kind is FrameKind.TOKENS else 128 << 10)
    for kind in FrameKind
}


class NameChanges(BaseModel):
    """Names of blocks of text that a server holds since a gateway's last report, or no longer."""

    model_config = STRICT

    number: Annotated[int, Field(ge=0, lt=1 << 62)]  # of the last change; the next report begins after it
    is_whole: bool = False  # all names that it holds: names that were known before are void
    added: Names = []
    removed: Names = []


class ReplicaState(BaseModel):
    """What a gateway chooses a server by."""

    model_config = STRICT

    boot: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]  # differs after a restart
    started: Annotated[float, Field(ge=0, le=1e12)] | None = None  # Unix time; None: a server that keeps no rates
    identity: ShortText  # of the model file and the arithmetic
    is_draining: bool
    patience_s: Patience | None  # how long a silence is no death; None: the engine is stuck
    backlog_tokens: Annotated[int, Field(ge=0, lt=1 << 40)]
    token_ms: Milliseconds
    fetch_ms: Milliseconds | None = None  # until another server's first block comes; None: it fetches none
    fetch_token_ms: Milliseconds = 0.0  # predicted time to fetch the keys and values of a token
    names: NameChanges | None = None  # None: it does not say what it holds


class _RequestHead(BaseModel):
    """All of a forwarded request but its body."""

    model_config = STRICT

    method: Annotated[str, Field(pattern=r"^[A-Z-]{1,32}$")]
    path: Annotated[str, Field(max_length=64 << 10)]
    query: Annotated[str, Field(max_length=64 << 10)]
    headers: Headers
    identity: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")], Annotated[int, Field(ge=0, lt=1 << 33)], Name]
    sent: TokenItems
    skipped: Index
    patient: bool
    hint: tuple[Annotated[str, Field(pattern=r"^https?://[\x21-\x7e]{1,256}$")], Index] | None = None
    names: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES, fail_fast=True)] = ()
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    charged: bool = False


_REPLY: TypeAdapter[tuple[int, Headers]] = TypeAdapter(
    tuple[Annotated[int, Field(ge=200, le=599)], Headers], config=STRICT
)
_TOKENS: TypeAdapter[list[TokenItem]] = TypeAdapter(TokenItems, config=STRICT)
_PATIENCE: TypeAdapter[float] = TypeAdapter(Patience, config=STRICT)
_USED: TypeAdapter[tuple[float, float]] = TypeAdapter(tuple[Used, Used], config=STRICT)
_RETURNED: TypeAdapter[tuple[str, bool]] = TypeAdapter(tuple[str, bool], config=STRICT)


def decode(model: type[M], data: bytes, what: str) -> M:
    """Raises ValueError."""
    return _decode(model.model_validate_json, data, what)


def _decode(validate: Callable[[bytes], T], data: bytes, what: str) -> T:
    """Raises ValueError in few words: pydantic would repeat the input."""
    try:
        return validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise ValueError(f"not {what}: {place} {first['msg'][:160]}") from None


@dataclass(frozen=True)
class PrefixHint:
    """A server of the fleet that is said to hold the first tokens of a request's prompt."""

    url: str
    num_tokens: int  # estimated from the text


@dataclass(frozen=True)
class ForwardedRequest:
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
    def decode(cls, data: bytes) -> "ForwardedRequest":
        """Raises ValueError if it is malformed."""
        length = int.from_bytes(data[: _HEAD.size], "big")
        if len(data) < _HEAD.size + length or length > MOST_HEAD_BYTES:
            raise ValueError("not a request of a gateway: its head is cut off or too long")
        head = decode(_RequestHead, data[_HEAD.size : _HEAD.size + length], "a request of a gateway")
        return cls(
            head.method, head.path, head.query, head.headers, data[_HEAD.size + length :],
            ReplyIdentity(*head.identity), tuple(map(_sent_token, head.sent)), head.skipped, head.patient,
            None if head.hint is None else PrefixHint(*head.hint), head.names, head.share, head.charged,
        )  # fmt: skip


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


def decode_tokens(payload: bytes) -> list[SentToken]:
    return [_sent_token(item) for item in _decode(_TOKENS.validate_json, payload, "tokens")]


def _sent_token(item: TokenItem) -> SentToken:
    if len(item) == 2:
        return SentToken(*item)
    answer, token, logprob, top = item
    return SentToken(answer, token, TokenLogprobs(token, logprob, tuple(top)))


def decode_reply_head(payload: bytes) -> tuple[int, Headers]:
    """Status and headers."""
    return _decode(_REPLY.validate_json, payload, "a reply's head")


def decode_patience(payload: bytes) -> float:
    return _decode(_PATIENCE.validate_json, payload, "a patience")


def decode_used(payload: bytes) -> tuple[float, float] | None:
    """Requests and tokens; None: the server has charged them itself."""
    return _decode(_USED.validate_json, payload, "what was used") if payload else None


def decode_returned(payload: bytes) -> tuple[str, bool]:
    """Why another server must go on, and whether a token that was sampled again was another one."""
    reason, is_unmatched = _decode(_RETURNED.validate_json, payload, "a reason")
    return reason[:256], is_unmatched


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
            first, length = _FRAME.unpack_from(self._buffer)
            kind, most = FRAMES.get(first, (None, 0))
            if kind is None or length > most:
                raise ValueError(f"a frame of {length} bytes that begins with {first!r}")
            if len(self._buffer) < _FRAME.size + length:
                return
            payload = bytes(self._buffer[_FRAME.size : _FRAME.size + length])
            del self._buffer[: _FRAME.size + length]
            yield kind, payload
