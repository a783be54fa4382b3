"""Measures the speed of models as served: through `LLM`, one request at a time, without speculation or prefix cache.

The measurement is short: it shows that a model is a third faster, not that it is 3 % faster. `surefoot bench` measures
more closely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from surefoot.api import LLM, RequestOutput, SamplingParams

ROUNDS = 5
PROMPT_TOKENS = 128
NEW_TOKENS = 32
CONTEXT = PROMPT_TOKENS + NEW_TOKENS


@dataclass(frozen=True)
class Rate:
    """Tokens per second over the rounds."""

    median: float  # of the rounds
    best: float  # of the rounds

    @classmethod
    def of(cls, rates: Sequence[float]) -> "Rate":
        return cls(median(rates), max(rates))


@dataclass(frozen=True)
class ServedSpeed:
    """Speed of prefill and decode."""

    prefill: Rate  # prompt tokens, until the first token of the answer
    decode: Rate  # tokens of the answer after the first


def load_served(model: str, float_format: str, variant: str | None, threads: int | None) -> LLM:
    """The model as `surefoot serve` loads it, with memory for one short request."""
    return LLM(
        model, float_format=float_format, variant=variant, threads=threads, max_context=CONTEXT, max_running=1,
        prefix_caching=False, speculate="off",
    )  # fmt: skip


def measure_served(llms: Sequence[LLM], tokens: Sequence[int], rounds: int = ROUNDS) -> list[ServedSpeed]:
    """The speed of each model. In each round every model answers the same prompt in turn, so that other load on the
    machine slows all of them alike."""
    context = min(llm.max_context for llm in llms)
    prompt = list(tokens[: max(1, min(PROMPT_TOKENS, context - NEW_TOKENS))])
    params = SamplingParams(temperature=0, seed=0, max_tokens=min(NEW_TOKENS, context - len(prompt)), ignore_eos=True)
    outputs: list[list[RequestOutput]] = [[] for _ in llms]
    for _ in range(rounds + 1):
        for llm, answers in zip(llms, outputs, strict=True):
            answers += llm.generate([prompt], params, use_tqdm=False)
    return [_speed(answers[1:]) for answers in outputs]  # the first round warms up


def _speed(outputs: Sequence[RequestOutput]) -> ServedSpeed:
    timings = [output.timings for output in outputs]
    prompt = len(outputs[0].prompt_token_ids)
    return ServedSpeed(
        Rate.of([prompt / timing.to_first_token for timing in timings]),
        Rate.of([timing.tokens_per_second or 0.0 for timing in timings]),
    )
