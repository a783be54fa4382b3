"""Traces of a real server, received as a collector receives them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the SDK is not installed: pip install -e '.[dev]'")

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from surefoot.core import Chunk, SampleKey
from surefoot.server.tracing.spans import SpanTracer
from surefoot.server.tracing.tracer import TracedRequest
from tests.server.process import Server
from tests.server.tracing.collector import Collector, facts
from tests.stories import stories_gguf
from tests.waiting import wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "Once upon a time, there was a little girl. " * 12


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        server = Server(stories_gguf(), "--pooling", "mean")
    yield server
    server.stop()


def ask(server: Server, route: str = "completions", **changes: Any) -> httpx.Response:
    body = {"model": "small", "prompt": PROMPT, "max_tokens": 60, "temperature": 0, **changes}
    return httpx.post(f"{server.url}/{route}", json=body, timeout=300)


def root_of(collector: Collector, answer_id: str) -> Span:
    def found() -> list[Span]:
        return [span for span in collector.roots() if facts(span)["gen_ai.response.id"] in answer_id]

    wait_for(found, "the trace")
    return found()[0]


def milliseconds(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6


def test_spans_of_a_request_in_the_clients_trace(traced: Server, collector: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    body = {"model": "small", "prompt": PROMPT, "max_tokens": 60, "temperature": 0}
    reply = httpx.post(f"{traced.url}/completions", json=body, headers=headers, timeout=300).json()
    root, usage = root_of(collector, reply["id"]), reply["usage"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert root.name == "text_completion small"
    assert root.status.code == Status.STATUS_CODE_OK
    assert facts(root)["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert facts(root)["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    children = collector.below(root)
    assert list(children) == ["prepare", "queue", "prefill", "decode"]
    for name in ("queue", "prefill", "decode"):
        assert milliseconds(children[name][0]) == pytest.approx(usage["timings_ms"][name], abs=0.1)
    prefill, decode = children["prefill"][0], children["decode"][0]
    chunks = [facts(span) for span in collector.below(prefill)["chunk"]]
    cached = facts(prefill)["surefoot.cached_tokens"]
    assert cached + sum(chunk["surefoot.tokens"] for chunk in chunks) == usage["prompt_tokens"]
    assert [chunk["surefoot.position"] for chunk in chunks] == sorted(chunk["surefoot.position"] for chunk in chunks)
    drafts = [facts(span) for span in collector.below(decode).get("speculation", [])]
    details = usage["completion_tokens_details"]
    accepted, rejected = details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]
    assert [draft["surefoot.drafted_tokens"] for draft in drafts] == [accepted + rejected] * bool(accepted + rejected)
    assert all(PROMPT[:20] not in str(facts(span)) for span in collector.spans), "never the text"


def test_a_trace_of_its_own(traced: Server, collector: Collector) -> None:
    root = root_of(collector, ask(traced).json()["id"])
    assert root.parent_span_id == b""
    assert root.trace_id.hex() != TRACE
    assert collector.resources[0]["service.name"] == "surefoot"


def test_a_client_that_does_not_sample(traced: Server, collector: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    body = {"model": "small", "prompt": "Once", "max_tokens": 4}
    silent = httpx.post(f"{traced.url}/completions", json=body, headers=headers, timeout=300).json()["id"]
    root_of(collector, ask(traced).json()["id"])  # which came later
    assert all(facts(span)["gen_ai.response.id"] not in silent for span in collector.roots())


def test_embeddings_have_no_decode(traced: Server, collector: Collector) -> None:
    count = len(collector.roots())
    assert ask(traced, "embeddings", input=["One", "Two words"]).status_code == 200
    wait_for(lambda: len(collector.roots()) > count, "the trace")
    root = collector.roots()[-1]
    assert root.name == "embeddings small"
    children = collector.below(root)
    assert {name: len(spans) for name, spans in children.items()} == {"prepare": 1, "queue": 2, "prefill": 2}


def test_an_abandoned_request_is_an_error() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = SpanTracer(provider, "small")
    trace = tracer.start(TracedRequest("1", "/v1/chat/completions", "alice", ("e1",), 10.0, 11.0))
    assert trace is not None
    tracer.watcher.on_step(4, 100.0, (), [Chunk(SampleKey("e1", 0), 0, (1, 2, 3, 4), (), 0, ())])
    trace.end([], "abandoned")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    root = spans["chat small"]
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "abandoned")
    assert root.attributes is not None
    assert root.attributes["enduser.id"] == "alice"
    assert spans["chunk"].parent == root.context
    assert spans["prepare"].end_time - spans["prepare"].start_time == 10**9  # type: ignore[operator]


def test_what_is_left_is_sent_at_the_end(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    server = Server(stories_gguf())
    answer = ask(server).json()["id"]
    assert all(facts(span)["gen_ai.response.id"] not in answer for span in collector.roots())
    server.terminate()
    root_of(collector, answer)
    server.stop()
