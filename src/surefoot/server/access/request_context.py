"""Where a request comes from: its caller, its route, how long it may take, and what forwarded it, if anything did."""

import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request as HttpRequest

from surefoot.api.answers import Piece, SentToken
from surefoot.core import Request
from surefoot.server.access.shares import Caller

SEED_BITS = 53  # of a drawn seed: JavaScript reads no longer integer exactly
TRACE_HEADERS = ("traceparent", "tracestate", "baggage")


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
            trace={name: http.headers[name] for name in TRACE_HEADERS if name in http.headers},
            num_body_bytes=getattr(http.state, "num_body_bytes", 0),
        )
