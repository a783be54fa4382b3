"""Runs engines over the windows of a text in turns, and scores each against the text and a reference engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from surefoot.evaluate.scores import Score, Tally
from surefoot.evaluate.windows import first_scored
from surefoot.ops.arrays import F32


class LogitsEngine(Protocol):
    """An engine that computes the logits of a window."""

    @property
    def name(self) -> str: ...

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        """The logits of every token, in chunks of CHUNK rows. A chunk is valid until the next is requested."""


@dataclass(frozen=True)
class PerplexityResults:
    """The results of `evaluate`."""

    context: int  # tokens in a window
    num_windows: int  # of the text
    reference: str | None  # name of the reference, if any
    scores: dict[str, Score]  # by name of the engine, including the reference


def evaluate(
    windows: Sequence[Sequence[int]],
    engines: Sequence[LogitsEngine],
    reference: LogitsEngine | None = None,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> PerplexityResults:
    """Perplexity of each engine over the second half of each window, and divergence from the reference over the
    whole."""
    tallies = tally(windows, engines, reference, advance)
    scores = {name: counts.score() for name, counts in tallies.items()}
    return PerplexityResults(len(windows[0]), len(windows), reference.name if reference else None, scores)


def tally(
    windows: Sequence[Sequence[int]],
    engines: Sequence[LogitsEngine],
    reference: LogitsEngine | None = None,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> dict[str, Tally]:
    """The tallies of `evaluate`, by name of the engine, the reference first.

    The engines take turns chunk by chunk, so that only one chunk of logits of each is in memory."""
    all_engines = [*([reference] if reference else []), *engines]
    tallies = {engine.name: Tally() for engine in all_engines}
    for window in windows:
        start = 0
        for chunks in zip(*(engine.logits(window) for engine in all_engines), strict=True):
            _count(tallies, dict(zip(tallies, chunks, strict=True)), window, start, reference)
            start += len(chunks[0])
            advance(len(chunks[0]))
    return tallies


def _count(
    tallies: dict[str, Tally], chunks: dict[str, F32], window: Sequence[int], start: int, reference: LogitsEngine | None
) -> None:
    """Counts one chunk of each engine. start: its first position in the window. The last token of a window has no
    target."""
    for name, logits in chunks.items():
        first = max(start, first_scored(len(window)))
        targets = window[first + 1 : start + len(logits) + 1]
        tallies[name].add_losses(logits[first - start :], targets)
        if reference and name != reference.name:
            tallies[name].add_divergences(chunks[reference.name], logits)


def as_json(results: PerplexityResults) -> dict[str, Any]:
    return asdict(results)
