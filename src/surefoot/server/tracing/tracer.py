"""The interface between the service and a tracer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surefoot.api.async_llm import Watcher
from surefoot.api.outputs import RequestOutput


@dataclass(frozen=True)
class TracedRequest:
    """The facts of a request when it is submitted to the engine. Never its text."""

    id: str
    route: str
    user: str
    request_ids: tuple[str, ...]  # ids in the engine, one for each prompt
    arrived: float  # when its route received it; seconds of time.monotonic
    began: float  # when it was submitted to the engine
    headers: Mapping[str, str] = field(default_factory=dict)  # W3C trace context


class RequestTrace(Protocol):
    """The trace of one request."""

    def end(self, outputs: Sequence[RequestOutput], end: str) -> None:
        """outputs: empty if the request was aborted. end: how the request ended; `whole` if it was answered."""


class RequestTracer(Protocol):
    """Starts the traces of requests."""

    @property
    def watcher(self) -> Watcher:
        """Must be registered with the engine, to see its steps."""

    def start(self, request: TracedRequest) -> RequestTrace | None:
        """None: the request is not sampled."""

    def close(self) -> None:
        """Send all spans that were not sent yet."""
