"""The interface between the service and a tracer, and what turns tracing on."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from surefoot.api.answers import RequestOutput
from surefoot.api.async_llm import Watcher

PROTOCOL = "http/protobuf"


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


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's standard variables turn traces on."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter == "otlp" or any(environment.get(name) for name in endpoints)


def open_tracer(
    model: str, tell: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> RequestTracer | None:
    """The tracer, or None if tracing is off or not possible. tell: prints a line of the banner."""
    if not is_asked_for(environment):
        return None
    general = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOL)
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    if protocol != PROTOCOL:
        tell(f"traces   off: the protocol {protocol} is not supported, set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}")
        return None
    try:
        spans = import_module("surefoot.server.tracing.spans")
    except ModuleNotFoundError as error:
        tell(f"traces   off: {error.name} is not installed (pip install 'surefoot[otel]')")
        return None
    tracer: RequestTracer = spans.SpanTracer.from_environment(model)
    tell("traces   on, by OpenTelemetry: queue, prefill, decode and drafts of each request, never its text")
    return tracer
