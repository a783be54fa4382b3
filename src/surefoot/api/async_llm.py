"""`AsyncLLM`: many requests at once from an event loop. One thread owns the engine: commands in, events out.

The event loop never waits for a step, and the engine never waits for a reader.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from surefoot.api.answers import (
    LiveRequest,
    NotExact,
    Piece,
    RequestOutput,
    SentToken,
    begin_requests,
    first_answers,
    merged,
    replay,
)
from surefoot.api.llm import BANDWIDTH_BUFFER_BYTES, LLM, Messages
from surefoot.api.pooling import PoolingConfig
from surefoot.api.reranking import Reranker
from surefoot.cache import DiskTier
from surefoot.core import Chunk, Load, Request, SampleKey, SampleStatus, SamplingParams
from surefoot.engine import Capacity, Engine, Event, Times
from surefoot.models import ModelConfig
from surefoot.ops import bandwidth_buffer, read_bandwidth
from surefoot.sampling import Grammars
from surefoot.text import ChatTemplate, Tokenizer
from surefoot.weights import bytes_on_disk

T = TypeVar("T")
MAX_UNREAD_TOKENS = 8192
# For sys.setswitchinterval: how long the engine's thread waits for the GIL while the loop's thread is busy in Python.
SWITCH_S = 0.0005
LOG = logging.getLogger(__name__)


class EngineFailed(RuntimeError):
    """A step failed as a whole. The engine has dropped every request and accepts new ones."""


class SlowReader(RuntimeError):
    """The reader left too many tokens unread; the request was aborted."""


@dataclass(frozen=True)
class EngineProgress:
    """Counters of the engine's thread."""

    num_steps: int = 0
    num_failures: int = 0  # steps that failed as a whole
    last: float = 0.0  # when it last ended a step or was idle, by time.monotonic
    load: Load = field(default_factory=Load)


class Watcher(Protocol):
    """Called after every step, on the engine's thread."""

    def on_step(self, num_tokens: int, elapsed_ms: float, events: Sequence[Event], chunks: Sequence[Chunk]) -> None: ...


class AnswerStream:
    """Pieces of the answers to one or several requests, for one reader. Lives on the loop's thread.

    A request's sample has index `number of the request * n + sample`. Unread pieces are merged, so that a slow reader
    gets fewer and longer ones; with `single` every token is a piece.
    """

    def __init__(
        self, llm: "AsyncLLM", lives: Sequence[LiveRequest], single: bool, sent: Sequence[SentToken] = ()
    ) -> None:
        """sent: tokens that the reader has. Their pieces come first, in this order."""
        self._llm = llm
        self._single = single
        self._lives = {live.request.id: live for live in lives}
        firsts = first_answers([live.request for live in lives])
        self._firsts = dict(zip(self._lives, firsts, strict=True))
        self._num_samples = lives[0].request.params.n  # of each request
        self._due = deque(sent)  # tokens whose pieces come before all others
        self._ready: list[Piece] = []  # taken for the reader, the next one last
        self._wake = asyncio.Event()
        self._error: Exception | None = None
        self._num_unread = 0

    @property
    def is_done(self) -> bool:
        return self._error is not None or all(live.is_done for live in self._lives.values())

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers so far."""
        return sum(live.num_tokens for live in self._lives.values())

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> Piece:
        while not self._ready:
            self._ready = [*self._take()][::-1]
            if self._ready:
                break
            if self._error is not None:
                raise self._error
            if self.is_done:
                if self._due:
                    raise NotExact("an answer ended before the tokens that were sent of it")
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._ready.pop()

    def _take(self) -> Iterator[Piece]:
        while self._due and (piece := self._take_first(self._due[0])) is not None:
            yield piece
        if self._due:
            return
        for request_id, live in self._lives.items():
            first = self._firsts[request_id]
            for piece in live.pieces if self._single else merged(live.pieces):
                yield replace(piece, index=first + piece.index) if first else piece
            live.pieces.clear()
        self._num_unread = 0

    def _take_first(self, due: SentToken) -> Piece | None:
        """The next piece of the answer that this token belongs to, if it has come."""
        live = [*self._lives.values()][due.answer // self._num_samples]
        piece = next((piece for piece in live.pieces if piece.index == due.answer % self._num_samples), None)
        if piece is None:
            return None
        live.pieces.remove(piece)
        if piece.token_ids:  # else the request was aborted
            self._due.popleft()
            if piece.token_ids != (due.token,):
                raise NotExact(f"token {due.token} was sent, and {piece.token_ids} is sampled at its place")
        return replace(piece, index=due.answer)

    async def outputs(self) -> list[RequestOutput]:
        """Read to the end and return the outputs."""
        async for _ in self:
            pass
        return [live.output() for live in self._lives.values()]

    def close(self) -> None:
        """Abort the requests that have not ended: the reader is gone."""
        self._llm._leave(self._lives)

    # ---- from the engine ----

    def feed(self, event: Event) -> bool:
        """Add an event. Returns whether a stop string was found, so that the engine must end the sample."""
        live = self._lives[event.key.request]
        is_stopped = False
        for part in event.split() if self._single else (event,):
            is_stopped = live.feed(part) or is_stopped
        live.close_piece()
        self._wake.set()
        self._num_unread += len(event.tokens)
        if self._num_unread > MAX_UNREAD_TOKENS:
            self.fail(SlowReader(f"more than {MAX_UNREAD_TOKENS} tokens were generated but not read"))
        return is_stopped

    def fail(self, error: Exception) -> None:
        if not self.is_done:
            self._error = error
            self.close()
        self._wake.set()


class AsyncLLM:
    """Runs an LLM on a separate thread, which must be its only user. Start and use it on one event loop."""

    def __init__(self, llm: LLM, watcher: Watcher | None = None) -> None:
        self._llm = llm
        self.engine: Engine = llm.engine  # only its thread may use it
        self.tokenizer: Tokenizer = llm.tokenizer
        self.chat_template: ChatTemplate = llm.chat_template
        self.grammars: Grammars = llm.grammars
        self.config: ModelConfig = llm.config
        self.file_bytes: int = bytes_on_disk(llm.path)
        self.disk_tier: DiskTier | None = llm.disk_tier  # to be watched
        self.default_sampling: SamplingParams = llm.default_sampling
        self.pooling: PoolingConfig | None = llm.pooling
        self.adapter: str | None = llm.adapter
        self.reranker: Reranker | None = llm.reranker
        self.max_context: int = llm.max_context  # tokens that memory holds
        self.context_length: int = llm.context_length  # where answers end
        self.capacity: Capacity = llm.capacity
        self.max_running: int = llm.capacity.scheduling.max_running  # samples that share a step
        self.progress = EngineProgress(last=time.monotonic())
        self._watcher = watcher
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._streams: dict[str, AnswerStream] = {}  # by request id; the loop's thread alone
        self._busy_since = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="surefoot-engine", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after the current step. Streams that have not ended fail with EngineFailed."""
        self.abort_all()
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail_all(EngineFailed("the engine was stopped"))

    def audit(self) -> None:
        """Check, once stopped, that every request has ended and holds no memory. Raises AssertionError."""
        self.engine.planner.audit()
        left = self.engine.load()
        assert not self.engine.has_work, f"requests are left behind: {left}"
        assert left.kv_use == 0, f"blocks are left behind: {left}"

    # ---- the loop's side ----

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def is_alive(self, patience_s: float) -> bool:
        """Whether the engine is idle or has ended a step within `patience_s`."""
        idle = not self._streams and self._commands.empty()
        last = max(self.progress.last, self._busy_since)
        return self._thread.is_alive() and (idle or time.monotonic() - last < patience_s)

    async def submit(
        self,
        requests: Sequence[Request],
        *,
        continues: bool = False,
        single: bool = False,
        sent: Sequence[SentToken] = (),
    ) -> AnswerStream:
        """Give the requests to the engine, all or none. Raises ValueError if one of them can never run here.

        continues: the answers continue the prompts' text, so that a leading space is kept. single: a piece per token.
        sent: tokens that the reader has; needs `single`. The answers go on after them.
        """
        requests = begin_requests(requests, sent)
        if duplicates := [request.id for request in requests if request.id in self._streams]:
            raise ValueError(f"there is a request {duplicates[0]!r} already: give it another id")
        lives = [LiveRequest(self.tokenizer, request, None, continues) for request in requests]
        replay(lives, sent)
        stream = AnswerStream(self, lives, single, sent)
        if not self._streams:
            self._busy_since = time.monotonic()
        self._streams |= {request.id: stream for request in requests}
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands.put(lambda: self._add_all(requests, accepted))
        try:
            await accepted
        except BaseException:
            stream.close()
            raise
        return stream

    def render(self, messages: Messages, **variables: Any) -> str:
        """The conversation as a prompt, rendered by the model's chat template, for `Tokenizer.encode_rendered`."""
        return self._llm.render(messages, **variables)

    def read_bytes(self, num_tokens: int) -> int:
        """Bytes read to decode one token after `num_tokens` others: weights, keys and values."""
        return self._llm.read_bytes(num_tokens)

    async def statuses(self) -> list[tuple[SampleStatus, Times]]:
        """Where every sample stands between two steps, and since when."""
        return await self.between_steps(self.engine.statuses)

    async def measure_bandwidth(self, num_reads: int) -> float:
        """Bytes per second that the model's threads read from memory: the best of some reads, each between two
        steps."""
        backend = self._llm.backend
        buffer = await asyncio.to_thread(bandwidth_buffer, backend, BANDWIDTH_BUFFER_BYTES)
        return max([await self.between_steps(lambda: read_bandwidth(backend, buffer)) for _ in range(num_reads)])

    async def between_steps(self, function: Callable[[], T]) -> T:
        """Call a function on the engine's thread, which alone may use the model, after a step or when idle."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def call() -> None:
            try:
                result = function()
            except Exception as error:
                self._call(_refuse, done, error)
            else:
                self._call(_accept, done, result)

        self._commands.put(call)
        return await done

    async def use_threads(self, num_threads: int) -> None:
        """Compute with at most this many of the model's threads, from the next step on. Results do not change."""
        await self.between_steps(lambda: self._llm.backend.use_threads(num_threads))

    def abort(self, request_id: str) -> None:
        """End a request before the next step; its stream then ends. A step that this request dominates is interrupted.
        Does nothing if the request has ended."""
        self._commands.put(lambda: self.engine.abort(request_id))
        self.engine.interrupt(request_id)

    def abort_all(self) -> None:
        for request_id in list(self._streams):
            self.abort(request_id)

    def _leave(self, lives: dict[str, LiveRequest]) -> None:
        for request_id, live in lives.items():
            if self._streams.pop(request_id, None) is not None and not live.is_done:
                self.abort(request_id)

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            stream = self._streams.get(event.key.request)
            if stream is None:
                continue
            if stream.feed(event):
                self._commands.put(lambda key=event.key: self._finish(key))  # type: ignore[misc]
            if stream.is_done:
                stream.close()

    def _fail_all(self, error: Exception) -> None:
        for stream in set(self._streams.values()):
            stream.fail(error)

    # ---- the engine's side ----

    def _run(self) -> None:
        engine = self.engine
        while True:
            engine.resume()  # before the commands: an interruption comes after its abort, so none is lost
            command = self._next_command(wait=not engine.has_work and not engine.keep_blocks())
            while command is not _NO_COMMAND:
                if command is None:
                    if engine.has_work:
                        self._step()  # only ends the aborted requests
                    return
                command()
                command = self._next_command(wait=False)
            if engine.has_work:
                self._step()
            self.progress = replace(self.progress, last=time.monotonic(), load=engine.load())

    def _next_command(self, wait: bool) -> Callable[[], None] | None:
        try:
            return self._commands.get(block=wait)
        except Empty:
            return _NO_COMMAND

    def _step(self) -> None:
        engine, before = self.engine, self.progress
        try:
            events = engine.step()
        except Exception as error:
            LOG.exception("a step failed")
            engine.reset()
            self.progress = replace(before, num_failures=before.num_failures + 1)
            self._call(self._fail_all, EngineFailed(f"a step failed: {type(error).__name__}"))
            return
        self.progress = replace(before, num_steps=before.num_steps + 1)
        if self._watcher is not None:
            self._watcher.on_step(engine.last_step_tokens, engine.last_step_ms, events, engine.last_chunks)
        if events:
            self._call(self._deliver, events)

    def _add_all(self, requests: Sequence[Request], accepted: "asyncio.Future[None]") -> None:
        added: list[Request] = []
        try:
            for request in requests:
                self.engine.add(request)
                added.append(request)
        except Exception as error:
            for request in added:
                self.engine.withdraw(request)
            self._call(_refuse, accepted, error)
            return
        self._call(_accept, accepted, None)

    def _finish(self, key: SampleKey) -> None:
        last = self.engine.finish(key)
        if last is not None:
            self._call(self._deliver, [last])

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop's thread. Does nothing once the loop is closed."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _NO_COMMAND() -> None:
    """No command is waiting."""


def _accept(accepted: "asyncio.Future[T]", result: T) -> None:
    if not accepted.done():
        accepted.set_result(result)


def _refuse(accepted: "asyncio.Future[T]", error: Exception) -> None:
    if not accepted.done():
        accepted.set_exception(error)
