"""Runs engines over a text's windows side by side and scores each against the text and against the reference."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from surefoot.evaluate.scores import Score, Tally
from surefoot.evaluate.windows import first_scored
from surefoot.ops.arrays import F32


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        """Of every token of the window, in chunks of CHUNK rows; a chunk stays until the next is asked for."""


@dataclass(frozen=True)
class Results:
    """Scores by engine, the reference's among them."""

    context: int
    num_windows: int
    reference: str | None
    scores: dict[str, Score]


def evaluate(
    windows: Sequence[Sequence[int]],
    engines: Sequence[Engine],
    reference: Engine | None = None,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> Results:
    """Perplexity of each engine over the second halves of windows; divergence from the reference over all of them."""
    tallies = tally(windows, engines, reference, advance)
    scores = {name: one.score() for name, one in tallies.items()}
    return Results(len(windows[0]), len(windows), reference.name if reference else None, scores)


def tally(
    windows: Sequence[Sequence[int]],
    engines: Sequence[Engine],
    reference: Engine | None = None,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> dict[str, Tally]:
    """What `evaluate` counts, by engine, the reference first.

    The engines take their steps by turns, so that one chunk of logits of each is all that is held."""
    everyone = [*([reference] if reference else []), *engines]
    tallies = {engine.name: Tally() for engine in everyone}
    for window in windows:
        start = 0
        for chunks in zip(*(engine.logits(window) for engine in everyone), strict=True):
            _count(tallies, dict(zip(tallies, chunks, strict=True)), window, start, reference)
            start += len(chunks[0])
            advance(len(chunks[0]))
    return tallies


def _count(
    tallies: dict[str, Tally], chunks: dict[str, F32], window: Sequence[int], start: int, reference: Engine | None
) -> None:
    """`start`: the chunks' first position in the window. The window's last token predicts nothing that we know."""
    for name, logits in chunks.items():
        first = max(start, first_scored(len(window)))
        targets = window[first + 1 : start + len(logits) + 1]
        tallies[name].add_losses(logits[first - start :], targets)
        if reference and name != reference.name:
            tallies[name].add_divergences(chunks[reference.name], logits)


def as_json(results: Results) -> dict[str, Any]:
    return asdict(results)
