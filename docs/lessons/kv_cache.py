"""Measures what a KV cache is worth, proves that it changes nothing, and draws the plot of kv-cache.md.

python docs/lessons/kv_cache.py MODEL [--tokens 256] [--svg plot.svg] [--variant avx2]
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot import LLM, SamplingParams

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


# ---- the plot ----

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 60, 45, 40, 20
COLOURS = {"without": "#c0392b", "with_cache": "#2471a3"}
NAMES = {"without": "without a KV cache", "with_cache": "with a KV cache"}


def draw(timings: Sequence[Timing], title: str) -> str:
    """Milliseconds per token against tokens so far, as SVG."""
    most_x, most_y = timings[-1].length, max(timing.without for timing in timings) * 1.05

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / most_x * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 22, title, "middle", size=15),
        _text((WIDTH + LEFT) / 2, HEIGHT - 8, "tokens so far", "middle"),
        _text(8, TOP - 8, "ms per token", "start"),
    ]
    for tick in _ticks(most_y):
        (x0, y), (x1, _) = place(0, tick), place(most_x, tick)
        parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x1}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick:g}", "end"))
    for timing in timings:
        x, y = place(timing.length, 0)
        parts.append(_text(x, y + 18, str(timing.length), "middle"))
    for number, (name, colour) in enumerate(COLOURS.items()):
        points = [place(timing.length, getattr(timing, name)) for timing in timings]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        parts.append(_text(LEFT + 16, TOP + 18 + 20 * number, NAMES[name], "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{text}</text>'


def _ticks(most: float) -> list[float]:
    step = next(step * 10**power for power in range(-3, 6) for step in (1, 2, 5) if most / (step * 10**power) <= 6)
    return [number * step for number in range(int(most / step) + 1)]


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
