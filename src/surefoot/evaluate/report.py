"""Shows perplexity results as a table for a terminal."""

from rich import box
from rich.table import Table

from surefoot.evaluate.perplexity import PerplexityResults
from surefoot.evaluate.scores import Fidelity, Score


def table(results: PerplexityResults) -> Table:
    title = f"{results.num_windows} windows of {results.context} tokens"
    shown = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    for number, column in enumerate(("", "perplexity", "beside", "mean KL", "99 %", "largest", "flips")):
        shown.add_column(column, justify="right" if number else "left")
    base = results.scores[results.reference or next(iter(results.scores))]
    for name, score in results.scores.items():
        shown.add_row(name, *_perplexity(score, base), *_fidelity(score.fidelity))
    if results.reference:
        shown.caption = f"KL in nats from {results.reference}; flips: its likeliest token is another"
        shown.caption_justify = "left"
    return shown


def _perplexity(score: Score, base: Score) -> list[str]:
    """The perplexity, and its difference from the base."""
    change = f"{score.perplexity / base.perplexity - 1:+.3%}" if score is not base else ""
    return [f"{score.perplexity:.4f}", change]


def _fidelity(fidelity: Fidelity | None) -> list[str]:
    if fidelity is None:
        return [""] * 4
    values = [_nats(fidelity.mean_kl), _nats(fidelity.kl_99), _nats(fidelity.max_kl)]
    return [*values, f"{fidelity.flips:.2%}"]


def _nats(value: float) -> str:
    return f"{value:.6f}" if value < 0.01 else f"{value:.4f}"
