"""Speed of models as they are served: through `LLM`, one request at a time, without speculation or cached prefixes.

Short: it tells a model that is a third faster from one that is not. `surefoot bench` measures more closely.
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
    """Tokens a second, over the rounds."""

    median: float
    best: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> "Rate":
        return cls(median(rates), max(rates))


@dataclass(frozen=True)
class ServedSpeed:
    """prefill: prompt tokens until the first token of the answer. decode: tokens after the first."""

    prefill: Rate
    decode: Rate


def load_served(model: str, float_format: str, variant: str | None, threads: int | None) -> LLM:
    """As `surefoot serve` loads it, with memory for one short request."""
    return LLM(
        model, float_format=float_format, variant=variant, threads=threads, max_context=CONTEXT, max_running=1,
        prefix_caching=False, speculate="off",
    )  # fmt: skip


def measure_served(llms: Sequence[LLM], tokens: Sequence[int], rounds: int = ROUNDS) -> list[ServedSpeed]:
    """Rounds in which each model answers the same prompt in turn, so that a noisy neighbour slows all of them alike."""
    context = min(llm.max_context for llm in llms)
    prompt = list(tokens[: max(1, min(PROMPT_TOKENS, context - NEW_TOKENS))])
    params = SamplingParams(temperature=0, seed=0, max_tokens=min(NEW_TOKENS, context - len(prompt)), ignore_eos=True)
    outputs: list[list[RequestOutput]] = [[] for _ in llms]
    for _ in range(rounds + 1):
        for llm, own in zip(llms, outputs, strict=True):
            own += llm.generate([prompt], params, use_tqdm=False)
    return [_speed(own[1:]) for own in outputs]  # the first round warms up


def _speed(outputs: Sequence[RequestOutput]) -> ServedSpeed:
    timings = [output.timings for output in outputs]
    prompt = len(outputs[0].prompt_token_ids)
    return ServedSpeed(
        Rate.of([prompt / one.to_first_token for one in timings]),
        Rate.of([one.tokens_per_second or 0.0 for one in timings]),
    )
