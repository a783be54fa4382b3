"""Receives traces as a collector of OpenTelemetry does: OTLP over HTTP, parsed with OpenTelemetry's own protobuf."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATH = "/v1/traces"


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def take(self, path: str, data: bytes) -> None:
        assert path == PATH
        for traces in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.resources.append({item.key: item.value.string_value for item in traces.resource.attributes})
            self.spans += [span for scope in traces.scope_spans for span in scope.spans]

    def roots(self) -> list[Span]:
        return [span for span in self.spans if span.kind == Span.SPAN_KIND_SERVER]

    def below(self, parent: Span) -> dict[str, list[Span]]:
        """A span's children by name, in the order of their start."""
        children: dict[str, list[Span]] = {}
        for span in sorted(self.spans, key=lambda span: span.start_time_unix_nano):
            if span.parent_span_id == parent.span_id:
                children.setdefault(span.name, []).append(span)
        return children

    def close(self) -> None:
        self._http.shutdown()


def facts(span: Span) -> dict[str, Any]:
    """A span's attributes."""
    values = {item.key: item.value for item in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}
