"""Sums up a comparison in one sentence per model."""

from decimal import Decimal

from surefoot.evaluate.compare import ComparedModel, Comparison
from surefoot.evaluate.speed import Rate

NOISE = 0.03  # relative difference in speed that a short measurement cannot distinguish from none


def verdicts(comparison: Comparison) -> list[str]:
    original, *others = comparison.models
    return [_verdict(original, other) for other in others]


def _verdict(original: ComparedModel, other: ComparedModel) -> str:
    loss = _loss(original, other)
    size = f"takes {other.nbytes / original.nbytes:.0%} of its bytes"
    if original.served is None or other.served is None:
        return f"{other.name} {loss} and {size}."
    speed = _speed(original.served.decode, other.served.decode)
    return f"{other.name} {loss}, {size} and decodes {speed} (both as served)."


def _loss(original: ComparedModel, other: ComparedModel) -> str:
    change = other.score.perplexity / original.score.perplexity - 1
    nats = other.score.fidelity.mean_kl if other.score.fidelity is not None else 0.0
    return f"loses {_plain(nats)} nats a token beside {original.name} in float32 (perplexity {change:+.2%})"


def _plain(number: float) -> str:
    """Two significant digits, without an exponent."""
    return f"{Decimal(f'{number:.2g}'):f}"


def _speed(original: Rate, other: Rate) -> str:
    """The ratio of medians in words. "about as fast" if it is within noise, or if medians and bests disagree."""
    typical, best = other.median / original.median, other.best / original.best
    if abs(typical - 1) <= NOISE or (typical > 1) != (best > 1):
        return "about as fast"
    return f"{typical:.2g} times as fast"
