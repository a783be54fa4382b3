"""OpenTelemetry spans of requests. Imported only if tracing is on, since the SDK is an optional dependency.

request ─ prepare        chat template, tokenisation and grammar, before the engine
        ─ queue          until its first step
        ─ prefill        until the first token ─ chunk   each step that computed a part of the prompt
        ─ decode         until the last token  ─ speculation   from the first to the last step that verified drafts

The spans are created when the request has ended, from times that the engine records in any case.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from surefoot import __version__
from surefoot.api.answers import RequestOutput
from surefoot.server.tracing.steps import StepLog, TracedChunk, TracedSteps
from surefoot.server.tracing.tracer import TracedRequest

Attributes = Mapping[str, AttributeValue]
OPERATIONS = {"embed": "embeddings", "rerank": "rerank", "chat": "chat", "messages": "chat", "responses": "chat"}
ANSWERED = "whole"


class SpanTracer:
    """Starts a span for each request, as a child of the client's span if the client sent one."""

    def __init__(self, provider: TracerProvider, model: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("surefoot", __version__)
        self._model = model
        self.watcher = StepLog()

    @classmethod
    def from_environment(cls, model: str) -> "SpanTracer":
        """The SDK reads sampler, resource, endpoint, headers and limits from the standard variables."""
        named = Resource.create().attributes.get("service.name", "")
        default = {"service.name": "surefoot"} if str(named).startswith("unknown_service") else {}
        provider = TracerProvider(resource=Resource.create(default), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider, model)

    def start(self, request: TracedRequest) -> "SpanTrace | None":
        operation = next((name for part, name in OPERATIONS.items() if part in request.route), "text_completion")
        spans = SpanMaker(self._tracer)
        span = self._tracer.start_span(
            f"{operation} {self._model}", propagate.extract(request.headers), SpanKind.SERVER,
            {
                "gen_ai.operation.name": operation, "gen_ai.request.model": self._model,
                "gen_ai.response.id": request.id, "http.route": request.route, "enduser.id": request.user,
            },
            start_time=spans.ns(request.arrived),
        )  # fmt: skip
        if not span.is_recording():
            return None
        self.watcher.open(request.request_ids)
        return SpanTrace(spans, self.watcher, span, request)

    def close(self) -> None:
        self._provider.shutdown()


class SpanMaker:
    """Creates spans whose start and end are already known. A trace has one, so that its spans are consistent."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def ns(self, seconds: float) -> int:
        """Nanoseconds since 1970, of a monotonic time."""
        return round(seconds * 1e9) + self._offset_ns

    def make(self, name: str, parent: Span, start: float, end: float, attributes: Attributes) -> Span:
        context: Context = trace.set_span_in_context(parent)
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=self.ns(start))
        span.end(self.ns(max(start, end)))
        return span


@dataclass(frozen=True)
class SpanTrace:
    """The open span of one request."""

    spans: SpanMaker
    log: StepLog
    span: Span
    request: TracedRequest

    def end(self, outputs: Sequence[RequestOutput], end: str) -> None:
        request, steps = self.request, self.log.take(self.request.request_ids)
        self.spans.make("prepare", self.span, request.arrived, request.began, {})
        for output in outputs:
            self._add_output(output, steps.pop(output.request_id))
        for unfinished in steps.values():
            self._add_chunks(self.span, unfinished.prefills)
        self.span.set_attributes(_usage(outputs))
        self.span.set_status(Status(StatusCode.OK) if end == ANSWERED else Status(StatusCode.ERROR, end))
        self.span.end()

    def _add_output(self, output: RequestOutput, steps: TracedSteps) -> None:
        times, usage, make = output.timings, output.usage, self.spans.make
        started, first = times.arrived + times.queued, times.arrived + times.to_first_token
        make("queue", self.span, times.arrived, started, {})
        prompt = {"surefoot.prompt_tokens": usage.num_prompt, "surefoot.cached_tokens": usage.num_cached}
        self._add_chunks(make("prefill", self.span, started, first, prompt), steps.prefills)
        if not usage.num_generated:
            return
        answer = {"surefoot.answer_tokens": usage.num_generated, "surefoot.passes": usage.num_passes}
        decode = make("decode", self.span, first, times.arrived + times.total, answer)
        if steps.drafting is not None:
            drafts = {
                "surefoot.drafted_tokens": usage.num_drafted, "surefoot.accepted_tokens": usage.num_accepted,
            }  # fmt: skip
            make("speculation", decode, steps.drafting.began, steps.drafting.ended, drafts)

    def _add_chunks(self, parent: Span, chunks: Sequence[TracedChunk]) -> None:
        for chunk in chunks:
            facts = {
                "surefoot.position": chunk.position,
                "surefoot.tokens": chunk.num_tokens,
                "surefoot.step_tokens": chunk.num_step_tokens,
            }
            self.spans.make("chunk", parent, chunk.step.began, chunk.step.ended, facts)


def _usage(outputs: Sequence[RequestOutput]) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": sum(output.usage.num_prompt for output in outputs),
        "gen_ai.usage.output_tokens": sum(output.usage.num_generated for output in outputs),
        "gen_ai.response.finish_reasons": [
            answer.finish_reason or "error" for output in outputs for answer in output.outputs
        ],
    }
