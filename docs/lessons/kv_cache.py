"""Measures what a KV cache is worth, proves that it changes nothing, and draws the plot of kv-cache.md.

python docs/lessons/kv_cache.py MODEL [--tokens 256] [--svg plot.svg] [--variant avx2]
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot import LLM, SamplingParams
from surefoot.charts.lines import line_plot

PROMPT = "Once upon a time"


@dataclass(frozen=True)
class Timing:
    """Milliseconds of the token that follows `length` tokens."""

    length: int
    without: float
    with_cache: float

    @property
    def speed_up(self) -> float:
        return self.without / self.with_cache


def with_cache(llm: LLM, prompt: Sequence[int], params: SamplingParams) -> list[tuple[int, float]]:
    """Tokens with their logprobs: keys and values of earlier tokens are read from the cache."""
    (output,) = llm.generate(prompt, params)
    return _drawn(output)


def without_cache(llm: LLM, prompt: Sequence[int], params: SamplingParams, num_tokens: int) -> list[tuple[int, float]]:
    """The same, but each token is a new request that knows nothing of the one before: all is computed anew."""
    tokens, found = list(prompt), []
    for _ in range(num_tokens):
        (output,) = llm.generate(tokens, params)
        found += _drawn(output)
        tokens.append(found[-1][0])
    return found


def _drawn(output: object) -> list[tuple[int, float]]:
    answer = output.outputs[0]  # type: ignore[attr-defined]
    return [(token, values[token].logprob) for token, values in zip(answer.token_ids, answer.logprobs, strict=True)]


def sampling(num_tokens: int, temperature: float = 0.8) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=1, max_tokens=num_tokens, logprobs=0, ignore_eos=True)


def measure(llm: LLM, tokens: Sequence[int], lengths: Sequence[int], rounds: int = 5) -> list[Timing]:
    """The best of several rounds, with and without in turns, so that other programs disturb both alike."""
    best: dict[tuple[int, bool], float] = {}
    for number in range(rounds + 1):  # the first warms up
        for length in lengths:
            for cached in (True, False):
                seconds = _seconds(llm, tokens[:length], cached)
                if number:
                    best[length, cached] = min(seconds, best.get((length, cached), seconds))
    return [Timing(length, best[length, False] * 1e3, best[length, True] * 1e3) for length in lengths]


def _seconds(llm: LLM, tokens: Sequence[int], cached: bool) -> float:
    """Of the token behind these: the first of a new request, or the second, whose past is in the cache."""
    pieces = llm.stream(tokens, sampling(2))
    start = time.perf_counter()
    next(pieces)
    if cached:
        start = time.perf_counter()
        next(pieces)
    seconds = time.perf_counter() - start
    pieces.close()
    return seconds


def draw(timings: Sequence[Timing], title: str) -> str:
    """Milliseconds per token against tokens so far, as SVG."""
    lines = {
        "with a KV cache": [(timing.length, timing.with_cache) for timing in timings],
        "without a KV cache": [(timing.length, timing.without) for timing in timings],
    }
    return line_plot(title, "tokens so far", "ms per token", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--variant")
    asked = parser.parse_args()
    llm = LLM(asked.model, prefix_caching=False, max_context=max(2 * asked.tokens, 64), variant=asked.variant)
    prompt = llm.tokenizer.encode(PROMPT)
    cached = with_cache(llm, prompt, sampling(asked.tokens))
    anew = without_cache(llm, prompt, sampling(1), asked.tokens)
    print(f"{asked.tokens} tokens and logprobs with and without: {'identical' if cached == anew else 'DIFFERENT'}")
    tokens = [*prompt, *(token for token, _ in cached)]
    lengths = [length for length in (16, 32, 64, 128, 192, 256) if length <= asked.tokens]
    timings = measure(llm, tokens, lengths, asked.rounds)
    for timing in timings:
        print(f"{timing.length:4} tokens: {timing.without:7.1f} ms without, {timing.with_cache:6.1f} ms with: "
              f"{timing.speed_up:.1f} times as fast")  # fmt: skip
    if asked.svg is not None:
        name = Path(asked.model).stem
        asked.svg.write_text(draw(timings, f"{name}, {llm.backend.variant}, {llm.backend.threads} threads"))


if __name__ == "__main__":
    main()
