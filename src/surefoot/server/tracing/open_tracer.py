"""Creates the tracer, if the environment turns tracing on."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module

from surefoot.server.tracing.tracer import RequestTracer

PROTOCOL = "http/protobuf"


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
