"""Who asks, by which route, and how urgent it is to them: over HTTP, or by a line of a file."""

from dataclasses import dataclass

from starlette.requests import Request as HttpRequest

from surefoot.server.keys import Caller


@dataclass(frozen=True)
class Asker:
    """last_event_id: where a broken stream is to go on. request: the answer's id; a new one if empty.

    is_patient: nobody waits for it. deadline_s: how long it may take, if not what the server's settings say.
    """

    caller: Caller
    route: str
    last_event_id: str = ""
    request: str = ""
    is_patient: bool = False
    deadline_s: float | None = None

    @classmethod
    def of(cls, http: HttpRequest) -> "Asker":
        return cls(http.state.caller, http.url.path, http.headers.get("last-event-id", ""))
