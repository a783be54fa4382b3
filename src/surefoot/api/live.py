"""A request in the engine: its answers, and pieces that have not been read yet."""

from collections import deque
from collections.abc import Collection
from dataclasses import replace

from surefoot.api.answer_builder import AnswerBuilder, logprobs_by_token
from surefoot.api.outputs import Logprob, Piece, RequestOutput, Timings
from surefoot.core import Request, SampleKey
from surefoot.engine import Event, Usage
from surefoot.text import Tokenizer


class LiveRequest:
    """Turns a request's events into pieces of text, and its last event into an output."""

    def __init__(self, tokenizer: Tokenizer, request: Request, text: str | None, continues: bool) -> None:
        self.request = request
        self._tokenizer = tokenizer
        self._text = text
        self._prompt_logprobs: tuple[dict[int, Logprob] | None, ...] | None = None
        self._answers = [AnswerBuilder(tokenizer, request, index, continues) for index in range(request.params.n)]
        self._last: dict[SampleKey, Event] = {}
        self.pieces: deque[Piece] = deque()  # not read yet
        self.num_tokens = 0  # of all answers

    @property
    def is_done(self) -> bool:
        return len(self._last) == len(self._answers)

    def feed(self, event: Event) -> bool:
        """Add an event; tokens after a stop string are dropped. Returns whether a stop string was found, so that the
        engine must end the sample."""
        answer, was_done = self._answers[event.key.sample], self._answers[event.key.sample].is_done
        if not was_done:
            piece = answer.feed(event)
            self.pieces.append(piece)
            self.num_tokens += len(piece.token_ids)
        if event.prompt_logprobs is not None:
            self._prompt_logprobs = (
                None,
                *(logprobs_by_token(self._tokenizer, logprobs) for logprobs in event.prompt_logprobs),
            )
        if event.reason is not None:
            self.record_end(event)
        return answer.is_done and not was_done and event.reason is None

    def record_end(self, last: Event) -> None:
        self._last[last.key] = last

    def close_piece(self) -> None:
        """Attach the output to the request's last piece."""
        if self.is_done:
            last = self.pieces.pop() if self.pieces else Piece(0, "", ())
            self.pieces.append(replace(last, output=self.output()))

    def output(self) -> RequestOutput:
        events = [self._last[SampleKey(self.request.id, index)] for index in range(len(self._answers))]
        outputs = tuple(answer.output() for answer in self._answers)
        usages = [event.usage for event in events if event.usage is not None]
        times = events[0].times
        assert times is not None
        return RequestOutput(
            request_id=self.request.id,
            prompt=self._text,
            prompt_token_ids=self.request.prompt,
            outputs=outputs,
            usage=Usage(
                len(self.request.prompt),
                sum(len(answer.token_ids) for answer in outputs),
                usages[0].num_cached if usages else 0,
                sum(usage.num_passes for usage in usages),
                sum(usage.num_drafted for usage in usages),
                sum(usage.num_accepted for usage in usages),
            ),
            timings=Timings.of(times, len(outputs[0].token_ids)),
            seed=self.request.params.seed or 0,
            embedding=events[0].embedding,
            prompt_logprobs=self._prompt_logprobs,
        )


def merged(pieces: Collection[Piece]) -> list[Piece]:
    """Pieces merged to one for each answer, in the order in which the answers appear; the last carries the output."""
    if len(pieces) == 1:  # as for most tokens of most streams
        return [*pieces]
    by_answer: dict[int, Piece] = {}
    output = None
    for piece in pieces:
        before = by_answer.get(piece.index)
        by_answer[piece.index] = piece if before is None else _joined(before, piece)
        output = piece.output or output
    joined = [replace(piece, output=None) for piece in by_answer.values()]
    return [*joined[:-1], replace(joined[-1], output=output)] if joined else []


def _joined(first: Piece, second: Piece) -> Piece:
    logprobs = None if first.logprobs is None else first.logprobs + (second.logprobs or ())
    text, tokens = first.text + second.text, first.token_ids + second.token_ids
    return Piece(first.index, text, tokens, logprobs, second.finish_reason, error=second.error)
