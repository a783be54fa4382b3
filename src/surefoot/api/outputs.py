"""What callers get: a request's answers, whole or piece by piece."""

from dataclasses import dataclass

from surefoot.engine import Times, Usage


@dataclass(frozen=True)
class Logprob:
    """rank: 1 for the most likely token; None if it was not among those asked for."""

    logprob: float
    decoded_token: str
    rank: int | None = None


@dataclass(frozen=True)
class CompletionOutput:
    """One answer. finish_reason: stop, length, memory, cancelled, deadline, error.

    stop_reason: the stop string or the stop token that ended it. logprobs: one dict a token, by token id.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, Logprob], ...] | None
    finish_reason: str | None
    stop_reason: str | int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Timings:
    """Seconds. queued: before the first step; to_first_token: from the request's arrival on."""

    queued: float
    to_first_token: float
    total: float
    tokens_per_second: float | None  # after the first token

    @classmethod
    def of(cls, times: Times, num_generated: int) -> "Timings":
        end = times.ended if times.ended is not None else times.arrived
        first = times.first_token if times.first_token is not None else end
        started = times.started if times.started is not None else end
        decoding = end - first
        speed = (num_generated - 1) / decoding if decoding > 0 and num_generated > 1 else None
        return cls(started - times.arrived, first - times.arrived, end - times.arrived, speed)


@dataclass(frozen=True)
class RequestOutput:
    """A request's end: its answers (n of them). seed: with it, the same request gives the same bits again.

    usage: of all answers together. timings: of the first. embedding: if that was asked for, instead of tokens.
    prompt_logprobs: if asked for, one dict a token of the prompt; None for the first, which nothing comes before.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    timings: Timings
    seed: int
    embedding: tuple[float, ...] | None = None
    prompt_logprobs: tuple[dict[int, Logprob] | None, ...] | None = None

    @property
    def text(self) -> str:
        """The first answer's."""
        return self.outputs[0].text


@dataclass(frozen=True)
class Piece:
    """What a step added to one answer: text that will not be taken back, and the tokens behind it.

    The last piece of a request carries its output. error: what went wrong, if that is why the answer ended.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, Logprob], ...] | None = None
    finish_reason: str | None = None
    output: RequestOutput | None = None
    error: str | None = None  # why, where the finish_reason is error
