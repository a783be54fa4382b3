"""Where a request comes from (its caller, its route, what forwarded it), and where its answer begins.

A stream that broke off is resumed where it was. The server keeps no state for that: the same request gives the same
tokens. An event's id holds a digest of the request, what the server chose for it (id, time, seed), and the number of
tokens of each answer that the client has once it has the event. A client that repeats the request with this id in
Last-Event-ID gets the events that follow.
"""

import hashlib
import re
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from starlette.requests import Request as HttpRequest

from surefoot.api.answers import Piece, SentToken
from surefoot.core import Request
from surefoot.server.access.shares import Caller
from surefoot.server.access.sure_check import SureCheck
from surefoot.server.errors import bad_request

SEED_BITS = 53  # of a drawn seed: JavaScript reads no longer integer exactly
TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
_ID = re.compile(
    r"sf1\.([0-9a-f]{16})\.([0-9a-f]{32})\.([0-9a-f]{1,10})\.([0-9a-f]{1,16})\.(\d{1,9}e?(?:-\d{1,9}e?)*)(u?)"
)
MOST_ID_CHARACTERS = 8192


@dataclass(frozen=True)
class ReplyIdentity:
    """What an answer has that is neither in its request nor computed."""

    request: str  # the answer's id: 32 hexadecimal digits
    created: int  # Unix time, which the chat template may print
    seed: int  # for a request without one

    @classmethod
    def draw(cls, request: str = "", created: int | None = None) -> "ReplyIdentity":
        """request: the answer's id, if it is known. created: Unix time; None: now."""
        now = int(time.time()) if created is None else created
        return cls(request or uuid.uuid4().hex, now, secrets.randbits(SEED_BITS))


class Forwarded(Protocol):
    """A request that came through something in front of this server, which may take it elsewhere if this server fails.

    The server asks it what is declared here, and knows no more of it. A server that nothing stands in front of has
    none.
    """

    @property
    def identity(self) -> ReplyIdentity: ...

    @property
    def is_patient(self) -> bool:
        """Whether no client waits for the answer."""

    def caller(self, caller: Caller) -> Caller:
        """The caller whose key it has, with the weight and the rates that hold for it."""

    def begin(self, requests: Sequence[Request]) -> Sequence[SentToken]:
        """The engine is about to get these. Returns the tokens that were sent already: the answer goes on there."""

    def note(self, piece: Piece) -> None:
        """A piece of the answer, before its bytes are sent."""

    def give_back(self, reason: str, is_unmatched: bool) -> None:
        """This server cannot go on. is_unmatched: a token that was sampled again was another one."""

    def end(self, num_generated: int) -> None:
        """It has ended, after so many tokens."""


@dataclass(frozen=True)
class RequestContext:
    """The same for an HTTP request and for a line of a batch."""

    caller: Caller
    route: str
    last_event_id: str = ""  # position at which to resume a broken stream
    request: str = ""  # the answer's id; empty: the server makes one
    created: int | None = None  # Unix time that the answer and its prompt tell; None: now
    is_patient: bool = False  # a batch: no client waits for the answer
    deadline_s: float | None = None  # how long it may take; None: as the settings say
    forwarded: Forwarded | None = None  # None: the client itself sent it
    sure: SureCheck | None = None  # answered only if the model is sure; None: in any case
    arrived: float = field(default_factory=time.monotonic)
    trace: Mapping[str, str] = field(default_factory=dict)  # headers of W3C trace context
    num_body_bytes: int = 0  # length of the JSON that it came as

    @classmethod
    def of(cls, http: HttpRequest) -> "RequestContext":
        forwarded: Forwarded | None = getattr(http.state, "forwarded", None)
        created: int | None = getattr(http.state, "line_created", None)  # the front says so of a batch
        return cls(
            http.state.caller,
            http.url.path,
            http.headers.get("last-event-id", ""),
            created=created,
            is_patient=created is not None or (forwarded is not None and forwarded.is_patient),
            forwarded=forwarded,
            sure=getattr(http.state, "sure", None),
            trace={name: http.headers[name] for name in TRACE_HEADERS if name in http.headers},
            num_body_bytes=getattr(http.state, "num_body_bytes", 0),
        )


@dataclass(frozen=True)
class StreamPosition:
    """How far a stream has come."""

    digest: str  # of the request and of what its answer depends on
    request: str  # the request's id: 32 hexadecimal digits
    created: int  # Unix time
    seed: int
    counts: tuple[int, ...]  # tokens sent of each answer
    ended: tuple[bool, ...]  # answers whose end was sent
    usage_sent: bool = False

    @classmethod
    def start(cls, digest: str, request: str, created: int, seed: int, num_answers: int) -> "StreamPosition":
        return cls(digest, request, created, seed, (0,) * num_answers, (False,) * num_answers)

    def restarted(self) -> "StreamPosition":
        return replace(self, counts=(0,) * len(self.counts), ended=(False,) * len(self.ended), usage_sent=False)

    def advanced(self, index: int, count: int, ended: bool) -> "StreamPosition":
        """The position after more of one answer. An answer that has ended stays ended."""
        counts, ends = [*self.counts], [*self.ended]
        counts[index], ends[index] = count, ended or ends[index]
        return replace(self, counts=(*counts,), ended=(*ends,))

    def with_usage(self) -> "StreamPosition":
        return replace(self, usage_sent=True)

    def __str__(self) -> str:
        answers = (f"{count}{'e' * ended}" for count, ended in zip(self.counts, self.ended, strict=True))
        places = f"{'-'.join(answers)}{'u' * self.usage_sent}"
        return f"sf1.{self.digest}.{self.request}.{self.created:x}.{self.seed:x}.{places}"

    @classmethod
    def parse(cls, text: str, digest: str, num_answers: int) -> "StreamPosition":
        """The position that an event's id holds. Raises ApiError if it belongs to another request."""
        match = _ID.fullmatch(text) if len(text) <= MOST_ID_CHARACTERS else None
        if match is None:
            raise bad_request("Last-Event-ID is not one of this server's: leave it out to begin anew", "Last-Event-ID")
        answers = match[5].split("-")
        seed = int(match[4], 16)
        if match[1] != digest or len(answers) != num_answers or seed >> 63:
            raise bad_request(
                "Last-Event-ID belongs to another request or another model: "
                "repeat the very same request, or leave the header out to begin anew",
                "Last-Event-ID",
            )
        counts = tuple(int(answer.removesuffix("e")) for answer in answers)
        ended = tuple(answer.endswith("e") for answer in answers)
        return cls(match[1], match[2], int(match[3], 16), seed, counts, ended, bool(match[6]))


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]
