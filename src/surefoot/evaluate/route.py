"""What a cascade of two models costs and how often it is right, on examples with known answers, for every bound.

A bound is chosen on one half of the examples and judged on the other, beside each model alone and beside drawing the
model at random, in the same time (docs/design/routes.md).
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from surefoot.api import LLM, SamplingParams
from surefoot.api.confidence import Confidence, sampled_logprobs
from surefoot.evaluate.speed import ServedSpeed
from surefoot.evaluate.windows import TextError

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NEVER = 1.0  # a bound that no mean logprob meets
STEPS = 10_000  # of a bound between whole numbers


@dataclass(frozen=True)
class Example:
    messages: Sequence[Mapping[str, Any]]
    answer: str  # what a right answer is compared with


def read_examples(path: Path) -> list[Example]:
    """Of each line of JSON: `prompt` or `messages`, and `answer`."""
    examples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            messages = value.get("messages") or [{"role": "user", "content": value["prompt"]}]
            examples.append(Example(messages, str(value["answer"])))
        except (ValueError, KeyError, AttributeError, TypeError):
            raise TextError(f"{path}, line {number}: give an object with prompt or messages, and answer") from None
    if len(examples) < 4:
        raise TextError(f"{path} has {len(examples)} examples: give at least 4, better 200")
    return examples


def _contains(said: str, answer: str) -> bool:
    return answer.casefold() in said.casefold()


def _exact(said: str, answer: str) -> bool:
    return said.strip() == answer.strip()


def _number(said: str, answer: str) -> bool:
    """The last number that it names."""
    found = NUMBER.findall(said.replace(",", ""))
    return bool(found) and float(found[-1]) == float(answer)


def _json(said: str, answer: str) -> bool:
    """The first object in it, fences and words around it apart."""
    start, end = said.find("{"), said.rfind("}")
    try:
        return bool(json.loads(said[start : end + 1]) == json.loads(answer))
    except ValueError:
        return False


class AnswerMatch(StrEnum):
    """How an answer is compared with the right one."""

    CONTAINS = "contains"
    EXACT = "exact"
    NUMBER = "number"
    JSON = "json"


MATCHES: Mapping[str, Callable[[str, str], bool]] = {
    AnswerMatch.CONTAINS: _contains, AnswerMatch.EXACT: _exact, AnswerMatch.NUMBER: _number, AnswerMatch.JSON: _json,
}  # fmt: skip


@dataclass(frozen=True)
class AnsweredExample:
    """One model's answer to one example."""

    is_right: bool
    mean_logprob: float  # of its first tokens
    seconds: float  # as the model's measured speed predicts them
    seconds_to_decide: float  # its prompt and its first tokens


def try_model(
    llm: LLM,
    speed: ServedSpeed,
    examples: Sequence[Example],
    match: AnswerMatch,
    params: SamplingParams,
    num_first: int,
) -> list[AnsweredExample]:
    """The model's answers, one or many in a step: their bits are the same."""
    outputs = llm.chat([example.messages for example in examples], replace(params, logprobs=0))
    trials = []
    for example, output in zip(examples, outputs, strict=True):
        (answer,) = output.outputs
        confidence = Confidence.of([*sampled_logprobs((answer.logprobs or ())[:num_first])])
        prompt_s = len(output.prompt_token_ids) / speed.prefill.median
        seconds = (prompt_s + count / speed.decode.median for count in (len(answer.token_ids), confidence.tokens))
        is_right = MATCHES[match](answer.text, example.answer)
        trials.append(AnsweredExample(is_right, confidence.mean_logprob, *seconds))
    return trials


@dataclass(frozen=True)
class CascadeOutcome:
    """A cascade at one bound."""

    bound: float  # of the mean logprob
    small_share: float  # of the examples that the small model answers
    quality: float  # share of right answers
    seconds: float  # an example
    random_quality: float  # of sending requests to either model at random, for the same seconds


@dataclass(frozen=True)
class Calibration:
    small: CascadeOutcome  # alone
    large: CascadeOutcome  # alone
    curve: Sequence[CascadeOutcome]  # of all examples, by bound, the least first
    chosen: CascadeOutcome  # on the examples that it was not chosen by
    large_there: CascadeOutcome  # alone, on the same examples
    num_examples: int
    most_lost: float  # share of right answers

    @property
    def pays(self) -> bool:
        chosen, large = self.chosen, self.large_there
        return chosen.seconds < large.seconds and chosen.quality >= large.quality - self.most_lost


def cascade(small: Sequence[AnsweredExample], large: Sequence[AnsweredExample], bound: float) -> CascadeOutcome:
    stays = [trial.mean_logprob >= bound for trial in small]
    right = [a.is_right if stay else b.is_right for a, b, stay in zip(small, large, stays, strict=True)]
    seconds = fmean(
        a.seconds if stay else a.seconds_to_decide + b.seconds for a, b, stay in zip(small, large, stays, strict=True)
    )
    return CascadeOutcome(bound, fmean(stays), fmean(right), seconds, _random_quality(small, large, seconds))


def _random_quality(small: Sequence[AnsweredExample], large: Sequence[AnsweredExample], seconds: float) -> float:
    cheap, dear = (fmean(trial.seconds for trial in trials) for trials in (small, large))
    share = min(max((seconds - cheap) / (dear - cheap), 0.0), 1.0) if dear > cheap else 0.0
    return (1 - share) * fmean(t.is_right for t in small) + share * fmean(t.is_right for t in large)


def large_alone(small: Sequence[AnsweredExample], large: Sequence[AnsweredExample]) -> CascadeOutcome:
    """The small model alone is the cascade at its least bound; this one has no small model to wait for."""
    seconds, quality = fmean(trial.seconds for trial in large), fmean(trial.is_right for trial in large)
    return CascadeOutcome(NEVER, 0.0, quality, seconds, _random_quality(small, large, seconds))


def choose_bound(small: Sequence[AnsweredExample], large: Sequence[AnsweredExample], most_lost: float) -> float:
    """Of the cascades that lose at most this share of right answers beside the large model, the cheapest one's."""
    wanted = fmean(trial.is_right for trial in large) - most_lost
    outcomes = [cascade(small, large, bound) for bound in _bounds(small)]
    return min((o for o in outcomes if o.quality >= wanted), key=lambda o: o.seconds).bound


def _bounds(small: Sequence[AnsweredExample]) -> list[float]:
    """Those that tell two examples apart, short enough to be written in a file."""
    return sorted({math.floor(trial.mean_logprob * STEPS) / STEPS for trial in small} | {NEVER})


def calibrate(small: Sequence[AnsweredExample], large: Sequence[AnsweredExample], most_lost: float) -> Calibration:
    bound = choose_bound(small[::2], large[::2], most_lost)
    curve = [cascade(small, large, each) for each in _bounds(small)]
    there = small[1::2], large[1::2]
    return Calibration(
        curve[0], large_alone(small, large), curve, cascade(*there, bound), large_alone(*there), len(small), most_lost
    )


def as_json(found: Calibration) -> dict[str, Any]:
    return {**asdict(found), "pays": found.pays}
