"""Where a request comes from: its caller, its route, and how long it may take."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request as HttpRequest

from surefoot.server.access.forwarded import Forwarded
from surefoot.server.access.keys import Caller

TRACE_HEADERS = ("traceparent", "tracestate", "baggage")


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
