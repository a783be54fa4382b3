"""The result of a run under a condition, and how its answers differ from those of requests that ran alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.api.answers import CompletionOutput
from surefoot.core import SampleKey
from surefoot.verify.conditions import Condition

EMBEDDING = "embedding: "  # before the bits of an embedding, where an answer has its text

Answers = Mapping[SampleKey, CompletionOutput]


@dataclass(frozen=True)
class Difference:
    """An answer that differs from that of the request alone."""

    request: str  # id
    sample: int  # number
    place: int  # index of the first token whose id or logprobs differ
    what: str  # ids, logprobs, text or embedding


@dataclass(frozen=True)
class Finding:
    """The result of one condition. Preemptions, cached tokens and drafts show how hostile it was."""

    condition: Condition
    variant: str
    threads: int
    num_requests: int  # requests that ran, which may be a subset
    is_whole: bool  # all requests ran and were compared
    unmet: tuple[str, ...]  # events that the condition should have caused and did not, such as a preemption
    num_samples: int  # answers that ended and were compared
    num_tokens: int  # of these answers
    num_steps: int
    num_preemptions: int
    num_cached: int  # prompt tokens
    num_drafted: int  # tokens; requests with a grammar do not count, since a grammar drafts the tokens it forces
    num_accepted: int  # of the drafted tokens
    seconds: float
    differences: tuple[Difference, ...]


def differences(expected: Answers, actual: Answers) -> Iterator[Difference]:
    """The answers in `actual` that are not equal to those in `expected`."""
    for key, answer in actual.items():
        alone = expected[key]
        if alone == answer:
            continue
        what, index = "text or reason of its end", len(alone.token_ids)
        if alone.text.startswith(EMBEDDING):
            what = "embedding"
        if alone.logprobs != answer.logprobs:
            what, index = "logprobs", _first_difference(alone.logprobs or (), answer.logprobs or ())
        if alone.token_ids != answer.token_ids:
            what, index = "ids", _first_difference(alone.token_ids, answer.token_ids)
        yield Difference(key.request, key.sample, index, what)


def _first_difference(first: Sequence[object], second: Sequence[object]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))
