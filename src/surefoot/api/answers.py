"""A request in the engine: its answers, built of tokens one by one, and pieces that have not been read yet.

An answer that was begun before, perhaps on another machine, goes on from the tokens that its reader has. The last token
of each answer is sampled again. It must be the same, which checks the contract across machines. What came with it (the
end of the answer, a stop string) then comes again by itself."""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from surefoot.core import FinishReason, Request, SampleKey
from surefoot.engine import Event, Times, Usage
from surefoot.sampling import TokenLogprobs
from surefoot.text import StreamDecoder, Tokenizer


@dataclass(frozen=True)
class Logprob:
    """A token's log probability."""

    logprob: float
    decoded_token: str
    rank: int | None = None  # 1 for the most likely token; None if it is not among the top logprobs asked for


@dataclass(frozen=True)
class CompletionOutput:
    """One answer."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, Logprob], ...] | None  # for each token, by token id; None if not asked for
    finish_reason: str | None  # stop, length, memory, cancelled, deadline or error
    stop_reason: str | int | None = None  # the stop string or stop token that ended it
    error: str | None = None  # what went wrong, if the finish_reason is error


@dataclass(frozen=True)
class Timings:
    """Times of a request, in seconds from its arrival."""

    queued: float  # until its first step
    to_first_token: float
    total: float
    tokens_per_second: float | None  # after the first token
    arrived: float = 0.0  # on the engine's clock

    @classmethod
    def of(cls, times: Times, num_generated: int) -> "Timings":
        end = times.ended if times.ended is not None else times.arrived
        first = times.first_token if times.first_token is not None else end
        started = times.started if times.started is not None else end
        decoding = end - first
        speed = (num_generated - 1) / decoding if decoding > 0 and num_generated > 1 else None
        return cls(started - times.arrived, first - times.arrived, end - times.arrived, speed, times.arrived)


@dataclass(frozen=True)
class RequestOutput:
    """A request that has ended, with its answers."""

    request_id: str
    prompt: str | None  # None if the prompt was given as token ids
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]  # n answers
    usage: Usage  # of all answers together
    timings: Timings  # of the first answer
    seed: int  # with it, the same request gives the same bits again
    embedding: tuple[float, ...] | None = None  # if asked for, instead of tokens
    # If asked for, for each token of the prompt, by token id; None for the first, which no token precedes.
    prompt_logprobs: tuple[dict[int, Logprob] | None, ...] | None = None

    @property
    def text(self) -> str:
        """The first answer's."""
        return self.outputs[0].text


@dataclass(frozen=True)
class Ranked:
    """A document's place in a ranking."""

    index: int  # of the document
    relevance_score: float  # the probability that it meets the query


@dataclass(frozen=True)
class Piece:
    """What a step added to one answer."""

    index: int  # of the answer
    text: str  # final: it is never taken back
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, Logprob], ...] | None = None
    finish_reason: str | None = None
    output: RequestOutput | None = None  # in the request's last piece
    error: str | None = None  # what went wrong, if the finish_reason is error


class StopFinder:
    """Passes text on once it cannot be part of a stop string, up to the first stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""  # may be the beginning of a stop string
        self.found: str | None = None  # the first stop string in the text

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        text = self._held + text
        matches = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            start, self.found = min(matches)
            self._held = ""
            return text[:start]
        safe = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of the text that is a prefix of the stop string."""
    longest = min(len(stop) - 1, len(text))
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)


class AnswerBuilder:
    """Takes tokens one by one, however many a step brings, so that the answer's end does not depend on the schedule."""

    def __init__(self, tokenizer: Tokenizer, request: Request, index: int, continues: bool) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._index = index
        self._decoder = StreamDecoder(tokenizer, skip_special=request.params.skip_special_tokens, continues=continues)
        self._stops = StopFinder(request.params.stop)
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[dict[int, Logprob]] | None = [] if request.params.logprobs is not None else None
        self._reason: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._error: str | None = None

    @property
    def is_done(self) -> bool:
        return self._reason is not None

    def feed(self, event: Event) -> Piece:
        num_tokens, text = len(self._tokens), ""
        for number, token in enumerate(event.tokens):
            is_stop = event.reason is FinishReason.STOP and number == len(event.tokens) - 1
            text += self._add(token, is_stop)
            if self._logprobs is not None and number < len(event.logprobs):
                self._logprobs.append(logprobs_by_token(self._tokenizer, event.logprobs[number]))
            if self._stops.found is not None:
                self._reason, self._stop_reason = FinishReason.STOP, self._stops.found
                break
        if event.reason is not None and self._reason is None:
            self._reason, self._error = event.reason, event.error
            text += self._stops.feed(self._decoder.finish()) + self._stops.finish()
        self._text.append(text)
        logprobs = None if self._logprobs is None else tuple(self._logprobs[num_tokens:])
        reason = None if self._reason is None else self._reason.value
        return Piece(self._index, text, tuple(self._tokens[num_tokens:]), logprobs, reason, error=self._error)

    def output(self) -> CompletionOutput:
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        reason = None if self._reason is None else self._reason.value
        return CompletionOutput(
            self._index, "".join(self._text), tuple(self._tokens), logprobs, reason, self._stop_reason, self._error
        )

    def _add(self, token: int, is_stop: bool) -> str:
        """The text that a token adds. A stop token adds none."""
        self._tokens.append(token)
        if is_stop:
            self._stop_reason = token if token in self._request.params.stop_token_ids else None
            return ""
        return self._stops.feed(self._decoder.feed([token]))


def logprobs_by_token(tokenizer: Tokenizer, logprobs: TokenLogprobs) -> dict[int, Logprob]:
    """Logprobs by token id, the sampled token first."""
    ranks = {token: rank for rank, (token, _) in enumerate(logprobs.top, 1)}
    values = {logprobs.token: logprobs.logprob, **dict(logprobs.top)}
    texts = {token: tokenizer.token_bytes(token).decode(errors="replace") for token in values}
    return {token: Logprob(value, texts[token], ranks.get(token)) for token, value in values.items()}


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


class SentToken(NamedTuple):
    """A token that the reader has."""

    answer: int  # its index among all answers of the stream
    token: int
    logprobs: TokenLogprobs | None = None  # if the request asks for them


class NotExact(RuntimeError):
    """A token that was sampled again is another one: this machine does not compute what the one before it did."""


def begin_requests(requests: Sequence[Request], sent: Sequence[SentToken]) -> list[Request]:
    """The requests, which go on after all tokens but the last of each answer. All requests have the same n."""
    outputs: dict[int, list[int]] = defaultdict(list)
    num_answers = sum(request.params.n for request in requests)
    for token in sent:
        if not 0 <= token.answer < num_answers:
            raise ValueError(f"there is no answer {token.answer}")
        outputs[token.answer].append(token.token)
    return [_begin(request, outputs, first) for request, first in zip(requests, first_answers(requests), strict=True)]


def _begin(request: Request, outputs: dict[int, list[int]], first: int) -> Request:
    begun = tuple(tuple(outputs[first + number][:-1]) for number in range(request.params.n))
    return replace(request, begun=begun) if any(begun) else request


def first_answers(requests: Sequence[Request]) -> list[int]:
    """The index of each request's first answer."""
    return [number * request.params.n for number, request in enumerate(requests)]


def replay(lives: Sequence[LiveRequest], sent: Sequence[SentToken]) -> None:
    """Bring requests to where they begin: their decoders, their search for stop strings, the pieces for their reader.
    Raises ValueError if the tokens cannot have been sent."""
    n = lives[0].request.params.n
    left = [len(output) for live in lives for output in live.request.begun or ((),) * n]
    for token in sent:
        if left[token.answer]:
            left[token.answer] -= 1
            live, sample = lives[token.answer // n], token.answer % n
            logprobs = () if token.logprobs is None else (token.logprobs,)
            if live.feed(Event(SampleKey(live.request.id, sample), (token.token,), logprobs)):
                raise ValueError("a stop string ends an answer before the last token that was sent of it")


def sent_tokens(piece: Piece) -> list[SentToken]:
    """A piece's tokens, as its reader has them."""
    logprobs = piece.logprobs if piece.logprobs else [None] * len(piece.token_ids)
    return [
        SentToken(piece.index, token, None if by_token is None else as_token_logprobs(by_token))
        for token, by_token in zip(piece.token_ids, logprobs, strict=True)
    ]


def as_token_logprobs(by_token: dict[int, Logprob]) -> TokenLogprobs:
    """The opposite of `logprobs_by_token`: the sampled token comes first."""
    ranked = sorted((item.rank, token, item.logprob) for token, item in by_token.items() if item.rank is not None)
    token, sampled = next(iter(by_token.items()))
    return TokenLogprobs(token, sampled.logprob, tuple((other, logprob) for _, other, logprob in ranked))
