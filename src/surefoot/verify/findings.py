"""What a run under a condition showed, and where its answers differ from those of requests that ran alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.api.outputs import CompletionOutput
from surefoot.core import SampleKey
from surefoot.verify.conditions import Condition

EMBEDDING = "embedding: "  # before the bits of an embedding, where an answer has its text

Answers = Mapping[SampleKey, CompletionOutput]


@dataclass(frozen=True)
class Difference:
    """An answer that is not the same as alone."""

    request: str
    sample: int
    place: int  # first token that differs in its id or logprobs
    what: str  # ids, logprobs, text or embedding


@dataclass(frozen=True)
class Finding:
    """The result of one condition. Preemptions, cached tokens and drafts show how hostile it was."""

    condition: Condition
    variant: str
    threads: int
    num_requests: int  # that ran, which may be some of all
    is_whole: bool  # whether all requests ran and were compared
    unmet: tuple[str, ...]  # what the condition should have caused and did not, such as a preemption
    num_samples: int  # answers that ended and were compared
    num_tokens: int  # of these answers
    num_steps: int
    num_preemptions: int
    num_cached: int  # tokens of prompts
    num_drafted: int  # tokens, without those of requests with a grammar, which drafts forced tokens itself
    num_accepted: int  # of the drafted tokens
    seconds: float
    differences: tuple[Difference, ...]


def differences(expected: Answers, found: Answers) -> Iterator[Difference]:
    """The answers in `found` that are not equal to those in `expected`."""
    for key, other in found.items():
        answer = expected[key]
        if answer == other:
            continue
        what, place = "text or reason of its end", len(answer.token_ids)
        if answer.text.startswith(EMBEDDING):
            what = "embedding"
        if answer.logprobs != other.logprobs:
            what, place = "logprobs", _first_difference(answer.logprobs or (), other.logprobs or ())
        if answer.token_ids != other.token_ids:
            what, place = "ids", _first_difference(answer.token_ids, other.token_ids)
        yield Difference(key.request, key.sample, place, what)


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
