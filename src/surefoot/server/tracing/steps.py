"""Records the steps of traced requests. Requests that are not traced are not recorded."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from surefoot.api.async_llm import Watcher
from surefoot.core import Chunk
from surefoot.engine import Event

MOST_CHUNKS = 256  # chunks recorded per request; later ones are dropped


@dataclass(frozen=True)
class StepTime:
    """Start and end of a step, in seconds of time.monotonic."""

    began: float
    ended: float


@dataclass(frozen=True)
class TracedChunk:
    """A part of a prompt that one step computed."""

    step: StepTime
    position: int  # of its first token
    num_tokens: int
    num_step_tokens: int  # tokens of all requests in the step


@dataclass
class TracedSteps:
    """The steps of one request. Written by the engine's thread; read by the event loop once the request has ended."""

    prefills: list[TracedChunk] = field(default_factory=list)
    drafting: StepTime | None = None  # from the first to the last step that verified drafts
    has_token: bool = False


class StepLog:
    """A watcher of the engine that records chunks of requests, from `open` until `take`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[str, TracedSteps] = {}
        self._clock = clock

    def open(self, request_ids: Collection[str]) -> None:
        self._open |= {request_id: TracedSteps() for request_id in request_ids}

    def take(self, request_ids: Collection[str]) -> dict[str, TracedSteps]:
        return {request_id: self._open.pop(request_id) for request_id in request_ids if request_id in self._open}

    def on_step(self, num_tokens: int, elapsed_ms: float, events: Sequence[Event], chunks: Sequence[Chunk]) -> None:
        if not self._open:
            return
        now = self._clock()
        step = StepTime(now - elapsed_ms / 1000, now)
        for chunk in chunks:
            if (steps := self._open.get(chunk.key.request)) is not None:
                _note(steps, chunk, step, num_tokens)
        for event in events:
            if event.tokens and (steps := self._open.get(event.key.request)) is not None:
                steps.has_token = True


def _note(steps: TracedSteps, chunk: Chunk, step: StepTime, num_step_tokens: int) -> None:
    """Record a chunk. A chunk of the prompt has tokens without logits, or comes before the answer's first token. Any
    other chunk holds the answer's last token, followed by drafts."""
    if not steps.has_token or len(chunk.tokens) > chunk.num_logits:
        if len(steps.prefills) < MOST_CHUNKS:
            steps.prefills.append(TracedChunk(step, chunk.start, len(chunk.tokens), num_step_tokens))
    elif len(chunk.tokens) > 1:
        began = step.began if steps.drafting is None else steps.drafting.began
        steps.drafting = StepTime(began, step.ended)


@dataclass(frozen=True)
class Watchers:
    """Passes each step on to several watchers."""

    watchers: tuple[Watcher, ...]

    def on_step(self, num_tokens: int, elapsed_ms: float, events: Sequence[Event], chunks: Sequence[Chunk]) -> None:
        for watcher in self.watchers:
            watcher.on_step(num_tokens, elapsed_ms, events, chunks)
