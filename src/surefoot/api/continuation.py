"""Answers that were begun before, perhaps on another machine, and go on from the tokens that their reader has.

The last token of each answer is sampled again. It must be the same, which checks the contract across machines. What
came with it (the end of the answer, a stop string) then comes again by itself.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from surefoot.api.live import LiveRequest
from surefoot.api.outputs import Logprob, Piece
from surefoot.core import Request, SampleKey
from surefoot.engine import Event
from surefoot.sampling import TokenLogprobs


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
