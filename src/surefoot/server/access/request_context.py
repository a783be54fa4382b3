"""Where a request comes from: its caller, its route, and how long it may take."""

from dataclasses import dataclass

from starlette.requests import Request as HttpRequest

from surefoot.server.access.keys import Caller


@dataclass(frozen=True)
class RequestContext:
    """The same for an HTTP request and for a line of a batch."""

    caller: Caller
    route: str
    last_event_id: str = ""  # position at which to resume a broken stream
    request: str = ""  # the answer's id; empty: the server makes one
    is_patient: bool = False  # a batch: no client waits for the answer
    deadline_s: float | None = None  # how long it may take; None: as the settings say

    @classmethod
    def of(cls, http: HttpRequest) -> "RequestContext":
        return cls(http.state.caller, http.url.path, http.headers.get("last-event-id", ""))
