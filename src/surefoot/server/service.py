"""The service behind all routes: admits requests, runs them in the engine, and accounts for them."""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from surefoot.api.answers import NotExact, Piece, RequestOutput
from surefoot.api.async_llm import AnswerStream, AsyncLLM, EngineFailed, SlowReader
from surefoot.core import Phase, Pooling, Request, SampleStatus, SamplingParams, ServiceClass
from surefoot.sampling import GrammarError, GrammarTimeout
from surefoot.server.access.gate import shutting_down
from surefoot.server.access.line_log import LineLog
from surefoot.server.access.request_context import RequestContext, StreamPosition
from surefoot.server.access.shares import Admission, Caller, Ticket, Turns
from surefoot.server.access.sure_check import UNSURE, SureCheck
from surefoot.server.bodies import BodyWork
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.metrics import EndedRequest, Metrics, PhaseTimes, RecentRequests, watch_engine
from surefoot.server.overview.figures import Samples, samples_of
from surefoot.server.overview.history import History
from surefoot.server.prompts import PromptEncoder
from surefoot.server.recent_prompts import Departure, RecentPrompts
from surefoot.server.schemas.ollama import ShownModel
from surefoot.server.settings import ServerSettings
from surefoot.server.tracing.tracer import RequestTrace, RequestTracer, TracedRequest

PATIENT_TIERS = ("flex",)
POLL_S = 0.005  # between two looks at a request that has just come
PROGRESS_S = 1.0  # how long a look at a request's progress may wait for a step to end
LOG = logging.getLogger(__name__)


class Service:
    def __init__(self, llm: AsyncLLM, settings: ServerSettings, fingerprint: str) -> None:
        self.llm = llm
        self.settings = settings
        self.fingerprint = fingerprint  # a stream can be resumed only where it is the same
        self.created = int(time.time())
        self.metrics = Metrics(settings.model_name)
        self.audit = LineLog("audit log", settings.audit_log)
        self.access = LineLog("access log", settings.access_log)
        self.tracer: RequestTracer | None = None
        self.is_draining = False
        self.runs: set[RequestRun] = set()  # in the engine
        self.recent = RecentRequests()
        self.history = History()
        self.recent_prompts = RecentPrompts()
        self.bandwidth: float | None = None  # bytes a second that the model's threads read from memory, once measured
        self.prompts = PromptEncoder(llm)
        self.grammar_turns = Turns(1)
        self.body_work = BodyWork()
        self._admission = Admission(settings.max_queue)
        self._watch()

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return self._admission.num_requests

    def samples(self) -> Samples:
        return samples_of(self.metrics.registry.collect())

    @property
    def shown(self) -> ShownModel:
        llm, names = self.llm, self.settings.model_names
        family, weight_bytes = llm.config.family, llm.read_bytes(0)
        return ShownModel(names, family, llm.file_bytes, weight_bytes, llm.max_context, self.fingerprint, self.created)

    def find_problem(self) -> dict[str, Any] | None:
        """Why no requests are taken; None: they are."""
        if self.is_draining:
            return {"status": "draining", "requests": self.num_requests}
        return None if self.llm.is_alive(self.settings.patience_s) else {"status": "stuck"}

    # ---- admission ----

    def check_model(self, name: str | None) -> None:
        settings = self.settings
        if name is not None and name not in settings.model_names and not settings.any_model_name:
            raise ApiError(
                404, f"there is no model {name[:80]!r} here: use {settings.model_name!r}",
                param="model", code="model_not_found",
            )  # fmt: skip

    def admit(self, caller: Caller) -> Ticket:
        """Admit a request before any work is done for it. The ticket is its place in the queue."""
        if self.is_draining:
            raise shutting_down()
        return self._admission.admit(caller)

    # ---- the engine ----

    async def start(
        self,
        ticket: Ticket,
        context: RequestContext,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        position: StreamPosition,
        *,
        deadline_s: float | None = None,
        tier: str | None = None,
        continues: bool = False,
        pooling: Pooling | None = None,
    ) -> "RequestRun":
        """Submit one request for each prompt. The run takes over the ticket. params: one for each prompt."""
        caller = ticket.caller
        self._audit_begin(context, caller, position)
        run = RequestRun(self, ticket, context, position, sum(map(len, prompts)), params[0])
        ticket.is_taken_over = True
        now, most_s = time.monotonic(), context.deadline_s or self.settings.deadline_s
        is_own = context.deadline_s is None and (deadline_s is None or deadline_s >= most_s)
        is_patient = context.is_patient or tier in PATIENT_TIERS
        requests = [
            Request(
                id=uuid.uuid4().hex,
                prompt=tuple(prompt),
                params=own if context.sure is None else context.sure.scored(own),
                user=caller.user,
                priority=caller.priority,
                weight=caller.weight,
                service=ServiceClass.BATCH if is_patient else ServiceClass.INTERACTIVE,
                namespace=caller.namespace,
                num_public_tokens=self.prompts.num_public(prompt),
                eos_token_ids=self.llm.tokenizer.ids.ends,
                deadline=now + min(deadline_s or most_s, most_s),
                answer_s=most_s if is_own else None,
                pooling=pooling,
            )
            for prompt, own in zip(prompts, params, strict=True)
        ]
        try:
            run.request_ids = tuple(request.id for request in requests)
            self.runs.add(run)
            run.trace = self._start_trace(run, context)
            # One piece a token, so that a reply that is computed again has the same bytes in the same events.
            single = any(position.counts) or context.forwarded is not None
            sent = context.forwarded.begin(requests) if context.forwarded is not None else ()
            if sent:
                self.prompts.check_tokens([token.token for token in sent], "sent")
            run.stream = await self.llm.submit(requests, continues=continues, single=single, sent=sent)
            # Without keys all clients are one user, and may still be several people. Replies of a fleet and of a batch
            # must not depend on what this server was asked before.
            if caller.key and pooling is None and len(prompts) == 1 and not (is_patient or context.forwarded):
                run.departure = self.recent_prompts.add(caller.namespace, prompts[0])
            if context.sure is not None and not any(position.counts):  # else it was sure when the stream began
                await run.check_sure(context.sure)
        except ValueError as error:
            run.close()
            raise bad_request(str(error)) from error
        except BaseException:
            run.close()
            raise
        return run

    def _start_trace(self, run: "RequestRun", context: RequestContext) -> RequestTrace | None:
        if self.tracer is None:
            return None
        return self.tracer.start(
            TracedRequest(
                run.position.request, run.context.route, run.caller.user, run.request_ids, context.arrived, run.began,
                context.trace,
            )
        )  # fmt: skip

    def _audit_begin(self, context: RequestContext, caller: Caller, position: StreamPosition) -> None:
        """Where an audit is required, refuse a request that the audit log cannot record."""
        if not self.settings.audit_required:
            return
        if not self.audit.write(
            request=position.request, route=context.route, user=caller.user, key=caller.key, end="begun"
        ):
            raise ApiError(
                503, "the audit log cannot be written, and nothing is answered without it: tell the server's operator",
                code="audit_unavailable", headers={"Retry-After": "60"},
            )  # fmt: skip

    def end(self, run: "RequestRun") -> None:
        duration_s = time.monotonic() - run.began
        self.runs.discard(run)
        if run.trace is not None:
            run.trace.end(run.outputs, run.end)
        if run.stream is not None:
            self.recent.add(run.summary())
        self._admission.observe(duration_s)
        if run.caller.tokens is not None:
            run.caller.tokens.take(run.num_prompt + run.num_generated)
        self.metrics.charge(run.caller.user, run.num_prompt + run.num_generated, run.num_cached, run.num_repeated)
        for output in run.outputs:
            self.metrics.count(output)
        self.audit.write(
            request=run.position.request, route=run.context.route, user=run.caller.user, key=run.caller.key,
            end=run.end, prompt_tokens=run.num_prompt, answer_tokens=run.num_generated, seconds=round(duration_s, 3),
            cached_tokens=run.num_cached,
        )  # fmt: skip

    def _watch(self) -> None:
        watch_engine(self.metrics, self.llm)
        watch = self.metrics.watch
        watch("surefoot:requests_in_server", "Requests that have not ended", lambda: self.num_requests)
        watch("surefoot:weight_bytes", "Bytes of weights that a step reads", lambda: self.llm.read_bytes(0))
        watch(
            "surefoot:memory_bandwidth_bytes_per_second", "Measured after the start; NaN before",
            lambda: math.nan if self.bandwidth is None else self.bandwidth,
        )  # fmt: skip
        watch("surefoot:audit_lines_lost_total", "Not written to the audit log", lambda: self.audit.num_lost)
        watch("surefoot:access_lines_lost_total", "Not written to the access log", lambda: self.access.num_lost)


def _failure(error: str) -> ApiError:
    """The error for a request on which the engine failed. If its grammar exceeded a bound, which may show only while
    tokens are sampled, the request is at fault; if a clock ended it, the machine is."""
    if error.startswith(GrammarTimeout.__name__):
        return ApiError(503, error.partition(": ")[2], code="grammar_timeout", headers={"Retry-After": "60"})
    if error.startswith(GrammarError.__name__):
        return bad_request(
            "the grammar, schema or regex became too complex while the answer was generated: make it simpler",
            code="grammar_too_complex",
        )
    LOG.error("the model failed on a request: %s", error)
    return ApiError(500, "the model failed on this request: see the server's log")


@dataclass(frozen=True)
class PromptProgress:
    """Tokens of a prompt, in the words of llama-server's clients."""

    total: int
    cache: int  # that came from the prefix cache
    processed: int  # whose keys and values are there, cached ones included


@dataclass(eq=False)
class RequestRun:
    """One HTTP request in the engine, until its last token. Must be closed, however it ends."""

    service: Service
    ticket: Ticket
    context: RequestContext
    position: StreamPosition
    num_prompt: int  # tokens of all prompts
    params: SamplingParams
    request_ids: tuple[str, ...] = ()  # in the engine
    began: float = field(default_factory=time.monotonic)
    stream: AnswerStream | None = None
    trace: RequestTrace | None = None  # None: the request is not traced
    outputs: list[RequestOutput] = field(default_factory=list)
    notices: tuple[str, ...] = ()  # parts of the request that were not honoured
    departure: Departure | None = None  # from the user's earlier prompts
    end: str = "refused"
    _early: list[Piece] = field(default_factory=list)  # read before the reply began
    _progress: PromptProgress | None = None
    _is_open: bool = True

    @property
    def caller(self) -> Caller:
        return self.ticket.caller

    async def check_sure(self, check: SureCheck) -> None:
        """Wait for the first tokens. Raises ApiError if the model is not sure of them."""
        async with aclosing(self._arriving()) as pieces:
            async for piece in pieces:
                self._early.append(piece)
                check.take(piece)
                if check.is_decided(len(self.position.counts)):
                    break
        self.end = UNSURE
        check.decide()
        self.end = "abandoned"

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces of all answers as they come. Raises ApiError if an answer does not end by itself."""
        sure = self.context.sure
        for piece in self._early:
            yield piece if sure is None else sure.shown(piece)
        async for piece in self._arriving():
            yield piece if sure is None else sure.shown(piece)

    async def _arriving(self) -> AsyncGenerator[Piece]:
        assert self.stream is not None
        self.end = "abandoned"
        try:
            async for piece in self.stream:
                if self.context.forwarded is not None:
                    self.context.forwarded.note(piece)
                if piece.output is not None:
                    self.outputs.append(piece.output)
                if piece.finish_reason is not None:
                    self._check_end(piece)
                yield piece
        except (EngineFailed, SlowReader, NotExact) as error:
            self.end = type(error).__name__
            self._give_back(str(error), isinstance(error, NotExact))
            status = 408 if isinstance(error, SlowReader) else 500
            raise ApiError(status, f"{error}: send the request again", code=self.end) from error
        self.end = "whole"

    def _check_end(self, piece: Piece) -> None:
        reason = piece.finish_reason
        if reason == "deadline":
            self.end = reason
            raise ApiError(504, "the request's deadline has passed: ask for less, or allow more time", code="deadline")
        if reason == "cancelled":
            self.end = "handed back"
            self._give_back("the server is shutting down")
            raise ApiError(503, "the server is shutting down: send the request again, with Last-Event-ID to go on")
        if reason == "error":
            self.end = "error"
            raise _failure(piece.error or "")

    def _give_back(self, reason: str, is_unmatched: bool = False) -> None:
        """Another server goes on, if there is one."""
        if is_unmatched:
            LOG.error("this server is not exact: %s", reason)
        if self.context.forwarded is not None:
            self.context.forwarded.give_back(reason, is_unmatched)

    async def whole(self) -> list[RequestOutput]:
        async for _ in self.pieces():
            pass
        assert self.stream is not None
        outputs, sure = await self.stream.outputs(), self.context.sure
        return outputs if sure is None else list(map(sure.shown_output, outputs))

    @property
    def more_usage(self) -> dict[str, Any]:
        """What `usage` tells in all APIs: the sampling parameters, with defaults and the drawn seed (with these the
        request gives the same answer again), and where the prompt parts from the user's earlier ones."""
        sampling = {**self.params.settable, "seed": self.position.seed}
        if self.departure is None:
            return {"sampling": sampling}
        decode, parted = self.service.llm.tokenizer.decode, self.departure
        told = {"before": decode(parted.before), "now": decode(parted.now)}
        counts = {"common_tokens": parted.common_tokens, "repeated_tokens": parted.repeated_tokens}
        return {"prefix": {**counts, **told}, "sampling": sampling}

    @property
    def num_repeated(self) -> int:
        """Tokens computed though the user's earlier prompt had them, since something before them had changed."""
        return self.departure.repeated_tokens if self.departure is not None else 0

    @property
    def num_generated(self) -> int:
        """Tokens generated so far."""
        return self.stream.num_tokens if self.stream is not None else 0

    @property
    def num_cached(self) -> int:
        """Prompt tokens of ended answers that came from the prefix cache."""
        return sum(output.usage.num_cached for output in self.outputs)

    async def beat(self, write: Callable[[PromptProgress], bytes]) -> bytes:
        """A sign of life for a silent stream; nothing if the engine is stuck."""
        progress = await self._find_progress()
        return write(progress) if self.service.llm.is_alive(self.service.settings.patience_s) else b""

    async def _find_progress(self) -> PromptProgress:
        """As it was known last if the engine is in a long step."""
        with suppress(TimeoutError):
            own = await asyncio.wait_for(self._statuses(), PROGRESS_S)
            self._progress = PromptProgress(
                self.num_prompt,
                sum(status.num_cached for status in own),
                min(self.num_prompt, sum(status.num_computed for status in own)),
            )
        return self._progress or PromptProgress(self.num_prompt, 0, 0)

    async def _statuses(self) -> list[SampleStatus]:
        return [status for status, _ in await self.service.llm.statuses() if status.key.request in self.request_ids]

    async def cached_at_start(self) -> int:
        """Prompt tokens that came from the prefix cache, as the first step knows them. 0 if none is planned soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PROGRESS_S):
                while (own := await self._statuses()) and all(status.phase is Phase.QUEUE for status in own):
                    await asyncio.sleep(POLL_S)
                return sum(status.num_cached for status in own)
        return 0

    def summary(self) -> EndedRequest:
        """Where its time went, now that it has ended."""
        seconds = time.monotonic() - self.context.arrived
        return EndedRequest(
            self.position.request, self.caller.user, self.context.route, self.end, time.time(), self.num_prompt,
            self.num_cached, self.num_generated, seconds, PhaseTimes.of(self.outputs, seconds),
        )  # fmt: skip

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self.context.forwarded is not None:
            self.context.forwarded.end(self.num_generated)
        if self.stream is not None:
            self.stream.close()
        self.ticket.release()
        self.service.end(self)
