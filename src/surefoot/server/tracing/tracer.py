"""How the service hands over what a trace is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surefoot.api.async_llm import Watcher
from surefoot.api.outputs import RequestOutput


@dataclass(frozen=True)
class TracedRequest:
    """What is known of a request when it is given to the engine. Never its text."""

    id: str
    route: str
    user: str
    request_ids: tuple[str, ...]  # in the engine, one for each prompt
    arrived: float  # at its route; seconds, by time.monotonic
    began: float  # when it was given to the engine
    headers: Mapping[str, str] = field(default_factory=dict)  # of W3C trace context


class RequestTrace(Protocol):
    """The trace of one request."""

    def end(self, outputs: Sequence[RequestOutput], end: str) -> None:
        """outputs: none if the request was abandoned. end: how it ended; `whole` if it was answered."""


class RequestTracer(Protocol):
    @property
    def watcher(self) -> Watcher:
        """Must see the engine's steps."""

    def start(self, request: TracedRequest) -> RequestTrace | None:
        """None: the request is not sampled."""

    def close(self) -> None:
        """Send what was not sent yet."""
