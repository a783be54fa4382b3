"""What all routes share: admission, prompts, and requests in the engine with the books kept of them."""

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from surefoot import machine
from surefoot.api.async_llm import AnswerStream, AsyncLLM, EngineFailed, SlowReader
from surefoot.api.defaults import as_values
from surefoot.api.outputs import Piece, RequestOutput
from surefoot.core import Request, SampleKey, SamplingParams, ServiceClass
from surefoot.engine import Event
from surefoot.sampling import GrammarError
from surefoot.server.asker import Asker
from surefoot.server.draining import shutting_down
from surefoot.server.errors import ApiError, bad_request, too_many
from surefoot.server.keys import Caller
from surefoot.server.line_log import LineLog
from surefoot.server.metrics import Metrics
from surefoot.server.settings import Settings
from surefoot.server.shares import Budget, Turns, asking_user
from surefoot.server.sse import Mark
from surefoot.text import ChatTemplateError, NoFimTokens, OtherFile, fim_prompt

PATIENT_TIERS = ("flex",)
ENCODING_THREADS = 2
LOG = logging.getLogger(__name__)


class Service:
    def __init__(self, llm: AsyncLLM, settings: Settings, fingerprint: str) -> None:
        self.llm = llm
        self.settings = settings
        self.fingerprint = fingerprint  # of model and version: a stream goes on only where it is the same
        self.created = int(time.time())
        self.metrics = Metrics(settings.model_name)
        self.audit = LineLog("audit log", settings.audit_log)
        self.access = LineLog("access log", settings.access_log)
        self.is_draining = False
        self._requests = Budget(settings.max_queue)
        self._mean_s = 1.0  # of late requests, for Retry-After
        self._longest_piece = max(map(len, llm.llm.tokenizer.pieces))
        self._template_turns, self._encoding_turns, self.grammar_turns = Turns(1), Turns(ENCODING_THREADS), Turns(1)
        self._public: list[tuple[int, ...]] = []  # beginnings of prompts that all may share
        _watch(self)

    @property
    def max_context(self) -> int:
        return self.llm.llm.max_context

    @property
    def default_sampling(self) -> SamplingParams:
        """For what a request leaves out. The fingerprint changes with it."""
        return self.llm.llm.default_sampling

    @property
    def num_requests(self) -> int:
        return self._requests.num_held

    # ---- admission ----

    def check_model(self, name: str | None) -> None:
        settings = self.settings
        if name is not None and name not in settings.model_names and not settings.any_model_name:
            raise ApiError(
                404, f"there is no model {name[:80]!r} here: use {settings.model_name!r}",
                param="model", code="model_not_found",
            )  # fmt: skip

    def admit(self, caller: Caller) -> "Ticket":
        """Before any work is done for it. The ticket is its place in the queue."""
        if self.is_draining:
            raise shutting_down()
        if not self._requests.take(caller.user):
            own = self._requests.held_by(caller.user)
            message = f"{self.num_requests} requests are in the queue, {own} of them yours"
            raise too_many(message, self._mean_s, "queue_full")
        try:
            _charge(caller)
        except ApiError:
            self.release(caller)
            raise
        asking_user.set(caller.user)
        return Ticket(self, caller)

    def release(self, caller: Caller) -> None:
        self._requests.give_back(caller.user)

    # ---- prompts ----

    async def encode(self, text: str, *, rendered: bool = False, add_special: bool = True) -> list[int]:
        """On another thread: a long text takes a while."""
        self._check_characters(len(text))
        tokenizer = self.llm.llm.tokenizer
        async with self._encoding_turns.turn():
            if rendered:
                return await asyncio.to_thread(tokenizer.encode_rendered, text)
            return await asyncio.to_thread(tokenizer.encode, text, add_special=add_special)

    async def encode_infill(self, prefix: str | list[int], suffix: str, others: Sequence[OtherFile]) -> list[int]:
        """A prompt that asks for what comes between the texts. On another thread too."""
        self._check_characters(len(prefix) + len(suffix) + sum(len(other.name) + len(other.text) for other in others))
        try:
            async with self._encoding_turns.turn():
                return await asyncio.to_thread(fim_prompt, self.llm.llm.tokenizer, prefix, suffix, others)
        except NoFimTokens as error:
            raise bad_request(str(error), "suffix", "no_fill_in") from error

    def _check_characters(self, count: int) -> None:
        """So many cannot be tokens that fit the context, so that they need not be counted."""
        if count > self.max_context * self._longest_piece:
            raise self._too_long("more", self.max_context)

    async def render(self, messages: Sequence[dict[str, Any]], **variables: Any) -> str:
        try:
            async with self._template_turns.turn():
                return await asyncio.to_thread(self.llm.llm.render, messages, **variables)
        except (ChatTemplateError, ValueError) as error:
            raise bad_request(str(error), "messages") from error

    async def learn_public_prefixes(self) -> None:
        """What prompts with these system messages have in common, whatever the user then says."""
        for text in self.settings.public_prefixes:
            system = {"role": "system", "content": text}
            prompts = []
            for said in ("a", "Z"):
                prompt = await self.render([system, {"role": "user", "content": said}])
                prompts.append(await self.encode(prompt, rendered=True))
            self._public.append(_common(*prompts))

    def _num_public(self, prompt: Sequence[int]) -> int:
        return max((len(_common(prompt, known)) for known in self._public), default=0)

    def _too_long(self, count: int | str, context: int) -> ApiError:
        return bad_request(
            f"the prompt has {count} tokens, the context holds {context}: shorten the prompt",
            "messages", "context_length_exceeded",
        )  # fmt: skip

    def check_length(self, caller: Caller, num_prompt: int, max_tokens: int | None) -> int:
        """How many tokens the answer may have: by model, key and request, never by this machine's memory."""
        context = min(self.llm.llm.context_length, caller.max_context or self.llm.llm.context_length)
        if num_prompt >= context:
            raise self._too_long(num_prompt, context)
        return min(max_tokens or context, context - num_prompt)

    # ---- the engine ----

    async def start(
        self,
        ticket: "Ticket",
        asker: Asker,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        mark: Mark,
        *,
        deadline_s: float | None = None,
        tier: str | None = None,
        continues: bool = False,
        embeds: bool = False,
    ) -> "Run":
        """The requests are with the engine when this returns; the ticket is then the run's. params: of each prompt."""
        caller = ticket.caller
        self._audit_begin(asker, caller, mark)
        run = Run(self, ticket, asker.route, mark, sum(map(len, prompts)), params[0])
        now, most_s = time.monotonic(), asker.deadline_s or self.settings.deadline_s
        is_patient = asker.is_patient or tier in PATIENT_TIERS
        requests = [
            Request(
                id=uuid.uuid4().hex,
                prompt=tuple(prompt),
                params=own,
                user=caller.user,
                priority=caller.priority,
                weight=caller.weight,
                service=ServiceClass.BATCH if is_patient else ServiceClass.INTERACTIVE,
                namespace=caller.user,
                num_public_tokens=self._num_public(prompt),
                eos_token_ids=self.llm.llm.tokenizer.ids.ends,
                deadline=now + min(deadline_s or most_s, most_s),
                embeds=embeds,
            )
            for prompt, own in zip(prompts, params, strict=True)
        ]
        try:
            is_resumed = any(mark.counts)
            run.stream = await self.llm.submit(requests, continues=continues, single=is_resumed)
        except ValueError as error:
            run.close()
            raise bad_request(str(error)) from error
        except BaseException:
            run.close()
            raise
        return run

    def _audit_begin(self, asker: Asker, caller: Caller, mark: Mark) -> None:
        """Where an audit is required, nothing is done for a request that it has no line of."""
        if not self.settings.audit_required:
            return
        if not self.audit.write(request=mark.request, route=asker.route, user=caller.user, key=caller.key, end="begun"):
            raise ApiError(
                503, "the audit log cannot be written, and this server answers nothing without: tell its operator",
                code="audit_unavailable", headers={"Retry-After": "60"},
            )  # fmt: skip

    def end(self, run: "Run") -> None:
        duration_s = time.monotonic() - run.began
        self._mean_s += 0.1 * (duration_s - self._mean_s)
        if run.caller.tokens is not None:
            run.caller.tokens.take(run.num_prompt + run.num_generated)
        self.metrics.charge(run.caller.user, run.num_prompt + run.num_generated)
        for output in run.outputs:
            self.metrics.count(output)
        self.audit.write(
            request=run.mark.request, route=run.route, user=run.caller.user, key=run.caller.key, end=run.end,
            prompt_tokens=run.num_prompt, answer_tokens=run.num_generated, seconds=round(duration_s, 3),
            cached_tokens=sum(output.usage.num_cached for output in run.outputs),
        )  # fmt: skip


def _charge(caller: Caller) -> None:
    """A request to the key's rates."""
    if caller.requests is not None:
        if wait_s := caller.requests.wait_s(1):
            raise too_many("more requests than your key allows in a minute", wait_s)
        caller.requests.take(1)
    if caller.tokens is not None and (wait_s := caller.tokens.wait_s(1)):
        raise too_many("more tokens than your key allows in a minute", wait_s)


def _failure(error: str) -> ApiError:
    """A grammar can prove too much for its bounds only once tokens are drawn: then the request is to blame."""
    if error.startswith(GrammarError.__name__):
        return bad_request(
            "the grammar, schema or regex takes more than its bound while the answer is written: make it simpler",
            code="grammar_too_complex",
        )
    LOG.error("the model failed on a request: %s", error)
    return ApiError(500, "the model failed on this request: see the server's log")


def _common(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(token for token, _ in pairs)


class Ticket:
    """A place in the queue, to be given back once: as a context, unless a run has taken it over."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self.caller = caller
        self.is_taken_over = False
        self._service = service
        self._is_open = True

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._service.release(self.caller)

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *error: object) -> None:
        if not self.is_taken_over:
            self.release()


class Run:
    """One HTTP request's answers. To be closed, however it ends."""

    def __init__(
        self, service: Service, ticket: Ticket, route: str, mark: Mark, num_prompt: int, params: SamplingParams
    ) -> None:
        ticket.is_taken_over = True
        self.service = service
        self.caller = ticket.caller
        self._ticket = ticket
        self.route = route
        self.mark = mark
        self.num_prompt = num_prompt
        self.params = params
        self.began = time.monotonic()
        self.stream: AnswerStream | None = None
        self.outputs: list[RequestOutput] = []
        self.notices: tuple[str, ...] = ()  # what of the request was not heeded
        self.end = "refused"
        self._is_open = True

    async def pieces(self) -> AsyncIterator[Piece]:
        """Raises ApiError if an answer does not come to an end of its own."""
        assert self.stream is not None
        self.end = "abandoned"
        try:
            async for piece in self.stream:
                if piece.output is not None:
                    self.outputs.append(piece.output)
                if piece.finish_reason is not None:
                    self._check_end(piece)
                yield piece
        except (EngineFailed, SlowReader) as error:
            self.end = type(error).__name__
            status = 500 if isinstance(error, EngineFailed) else 408
            raise ApiError(status, f"{error}: send the request again", code=self.end) from error
        self.end = "whole"

    def _check_end(self, piece: Piece) -> None:
        reason = piece.finish_reason
        if reason == "deadline":
            self.end = reason
            raise ApiError(504, "the request's deadline has passed: ask for less, or allow more time", code="deadline")
        if reason == "cancelled":
            self.end = "handed back"
            raise ApiError(503, "the server is shutting down: send the request again, with Last-Event-ID to go on")
        if reason == "error":
            self.end = "error"
            raise _failure(piece.error or "")

    async def whole(self) -> list[RequestOutput]:
        async with aclosing(self.pieces()) as pieces:  # type: ignore[type-var]
            async for _ in pieces:
                pass
        assert self.stream is not None
        return await self.stream.outputs()

    @property
    def sampling(self) -> dict[str, float]:
        """How the tokens are chosen, defaults and a drawn seed included: with these, the request gives this answer."""
        return {**as_values(self.params), "seed": self.mark.seed}

    @property
    def num_generated(self) -> int:
        """So far."""
        return self.stream.num_tokens if self.stream is not None else 0

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self.stream is not None:
            self.stream.close()
        self._ticket.release()
        self.service.end(self)


class StepWatch:
    """Steps and the gaps between an answer's tokens, seen on the engine's thread."""

    def __init__(self) -> None:
        self.metrics: Metrics | None = None
        self._last: dict[SampleKey, float] = {}

    def on_step(self, num_tokens: int, elapsed_ms: float, events: Sequence[Event]) -> None:
        if self.metrics is None:
            return
        self.metrics.step_size.observe(num_tokens)
        self.metrics.step_time.observe(elapsed_ms / 1000)
        self.metrics.generated.inc(sum(len(event.tokens) for event in events))
        now = time.monotonic()
        for event in events:
            if event.tokens and event.key in self._last:
                self.metrics.gap.observe(now - self._last[event.key])
            if event.tokens:
                self._last[event.key] = now
            if event.reason is not None:
                self._last.pop(event.key, None)


def _watch(service: Service) -> None:
    watch, llm = service.metrics.watch, service.llm
    watch("vllm:num_requests_running", "Answers in the steps", lambda: llm.progress.load.num_running)
    watch("vllm:num_requests_waiting", "Answers that wait", lambda: llm.progress.load.num_waiting)
    watch("vllm:kv_cache_usage_perc", "Share of KV blocks in use", lambda: llm.progress.load.kv_use)
    watch("vllm:num_preemptions_total", "Answers sent back to wait", lambda: llm.progress.load.num_preemptions)
    watch("surefoot:requests_in_server", "Requests that have not ended", lambda: service.num_requests)
    watch("surefoot:engine_steps_total", "Steps taken", lambda: llm.progress.num_steps)
    watch("surefoot:engine_failures_total", "Steps that failed as a whole", lambda: llm.progress.num_failures)
    watch("surefoot:audit_lines_lost_total", "Not written to the audit log", lambda: service.audit.num_lost)
    watch("surefoot:access_lines_lost_total", "Not written to the access log", lambda: service.access.num_lost)
    watch("surefoot:cpu_throttled_seconds_total", "Time held back by the CPU quota", machine.throttled_s)
