"""Traces are off unless the standard variables ask for them, and cost nothing then."""

import subprocess
import sys

import pytest

from surefoot.server.tracing.tracer import is_asked_for, open_tracer

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
    ],
)
def test_the_environment_decides(environment: dict[str, str], expected: bool) -> None:
    assert is_asked_for(environment) is expected


def test_serving_does_not_import_the_sdk() -> None:
    check = "import sys, surefoot.server.serve; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.delitem(sys.modules, "surefoot.server.tracing.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert open_tracer("small", said.append, ENDPOINT) is None
    assert "pip install 'surefoot[otel]'" in said[0]
    assert open_tracer("small", said.append, {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert "grpc is not supported" in said[1]
    assert open_tracer("small", said.append, {}) is None
    assert len(said) == 2
