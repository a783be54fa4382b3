"""A comparison in a sentence a model."""

from decimal import Decimal

from surefoot.evaluate.compare import Compared, Comparison
from surefoot.evaluate.speed import Rate

NOISE = 0.03  # a difference in speed that a short measurement cannot tell from none


def verdicts(comparison: Comparison) -> list[str]:
    original, *others = comparison.models
    return [_verdict(original, other) for other in others]


def _verdict(original: Compared, other: Compared) -> str:
    loss = _loss(original, other)
    size = f"takes {other.nbytes / original.nbytes:.0%} of its bytes"
    if original.served is None or other.served is None:
        return f"{other.name} {loss} and {size}."
    speed = _speed(original.served.decode, other.served.decode)
    return f"{other.name} {loss}, {size} and decodes {speed} (both as served)."


def _loss(original: Compared, other: Compared) -> str:
    change = other.score.perplexity / original.score.perplexity - 1
    nats = other.score.fidelity.mean_kl if other.score.fidelity is not None else 0.0
    return f"loses {_plain(nats)} nats a token beside {original.name} in float32 (perplexity {change:+.2%})"


def _plain(number: float) -> str:
    """Two digits that count, and no power of ten."""
    return f"{Decimal(f'{number:.2g}'):f}"


def _speed(original: Rate, other: Rate) -> str:
    """Median and best must say the same."""
    typical, best = other.median / original.median, other.best / original.best
    if abs(typical - 1) <= NOISE or (typical > 1) != (best > 1):
        return "about as fast"
    return f"{typical:.2g} times as fast"
