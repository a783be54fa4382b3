"""The API's results: a request's answers, whole or in pieces."""

from dataclasses import dataclass

from surefoot.engine import Times, Usage


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
