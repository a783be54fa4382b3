"""Shows a comparison as one self-contained HTML page, and as tables for a terminal; and perplexities as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich import box
from rich.table import Table

from surefoot.charts.lines import Axes, Series
from surefoot.charts.page import document, figure, html_table
from surefoot.evaluate.compare import ComparedModel, Comparison
from surefoot.evaluate.perplexity import PerplexityResults
from surefoot.evaluate.route import Calibration
from surefoot.evaluate.scores import Fidelity
from surefoot.evaluate.speed import NEW_TOKENS, PROMPT_TOKENS, ROUNDS, ServedSpeed
from surefoot.evaluate.verdict import verdicts

DIVERGENCE = ("mean KL", "99 %", "largest", "flips")
COLUMNS = ("model", "size", "perplexity", *DIVERGENCE, "agreed")
SPEED_COLUMNS = ("model", "decode", "best", "prefill", "best")
SPEED_CAPTION = (
    f"Tokens a second of every model as served, the original too: one request at a time, no speculation; median and "
    f"best of {ROUNDS} rounds in turns; prompts of up to {PROMPT_TOKENS} tokens, answers of {NEW_TOKENS}. The float32 "
    "reference is not timed."
)


@dataclass(frozen=True)
class Origin:
    """How, when and where a comparison was measured."""

    date: str  # of the measurement
    version: str  # of surefoot
    machine: str  # processor and threads
    command: str  # repeats the measurement


def rows(comparison: Comparison) -> list[list[str]]:
    return [_row(model) for model in comparison.models]


def _row(model: ComparedModel) -> list[str]:
    agreed = f"{model.mean_agreed:.1f}" if model.score.fidelity is not None else ""
    divergence = _divergence(model.score.fidelity)
    name = f"{model.name} ({model.arithmetic})"
    return [name, f"{model.nbytes / 1e6:.1f} MB", f"{model.score.perplexity:.4f}", *divergence, agreed]


def _divergence(fidelity: Fidelity | None) -> list[str]:
    if fidelity is None:
        return [""] * 4
    nats = (_nats(fidelity.mean_kl, 5), _nats(fidelity.kl_99, 4), _nats(fidelity.max_kl, 3))
    return [*nats, f"{fidelity.flips:.2%}"]


def _nats(value: float, digits: int) -> str:
    """With more digits where it is small."""
    return f"{value:.{digits if value >= 0.01 else 6}f}"


def speed_rows(comparison: Comparison) -> list[list[str]]:
    speeds = [(model.name, model.served) for model in comparison.models if model.served is not None]
    return [[name, *map("{:.1f}".format, _rates(served))] for name, served in speeds]


def _rates(speed: ServedSpeed) -> tuple[float, ...]:
    return speed.decode.median, speed.decode.best, speed.prefill.median, speed.prefill.best


def _caption(comparison: Comparison) -> str:
    original = comparison.models[0].name
    return (
        f"{comparison.num_windows} windows, {comparison.num_tokens} tokens. KL in nats from {original} in float32, the "
        f"reference; flips: its likeliest token is another; agreed: tokens of the greedy continuations of "
        f"{comparison.num_continued} prompts, up to the first that differs"
    )


def tables(comparison: Comparison) -> list[Table]:
    predictions = _table(COLUMNS, rows(comparison), _caption(comparison))
    if speeds := speed_rows(comparison):
        return [predictions, _table(SPEED_COLUMNS, speeds, SPEED_CAPTION)]
    return [predictions]


def perplexity_table(results: PerplexityResults) -> Table:
    base = results.scores[results.reference or next(iter(results.scores))].perplexity
    cells = [
        [name, f"{score.perplexity:.4f}", f"{score.perplexity / base - 1:+.3%}", *_divergence(score.fidelity)]
        for name, score in results.scores.items()
    ]
    caption = f"{results.num_windows} windows of {results.context} tokens"
    if results.reference:
        caption += f". KL in nats from {results.reference}; flips: its likeliest token is another"
    return _table(("", "perplexity", "beside", *DIVERGENCE), cells, caption)


def route_table(found: Calibration) -> Table:
    curve = [found.curve[len(found.curve) * part // 4] for part in (3, 2, 1)]
    rows = [
        ("small alone", found.small), ("large alone", found.large),
        *((f"cascade at {outcome.bound:g}", outcome) for outcome in curve),
        (f"chosen: {found.chosen.bound:g}", found.chosen),
    ]  # fmt: skip
    cells = [
        [name, f"{o.small_share:.0%}", f"{o.quality:.1%}", f"{o.random_quality:.1%}", f"{o.seconds:.2f} s"]
        for name, o in rows
    ]
    caption = (
        f"{found.num_examples} examples. At random: right answers if the model were drawn, in the same time an "
        "example. The chosen bound was chosen on one half of the examples; its line is about the other half. Times are "
        "predicted from the models' measured speeds, one request at a time"
    )
    return _table(("", "by small", "right", "at random", "time"), cells, caption)


def _table(columns: Sequence[str], cells: list[list[str]], caption: str) -> Table:
    shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for number, column in enumerate(columns):
        # On a narrow terminal names are wrapped, numbers are not.
        shown.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=bool(number))
    for row in cells:
        shown.add_row(*row)
    return shown


def page(comparison: Comparison, title: str, origin: Origin) -> str:
    parts = [
        *(f"<p class=verdict>{escape(sentence)}</p>" for sentence in verdicts(comparison)),
        "<h2>Predictions</h2>",
        html_table(COLUMNS, rows(comparison), _caption(comparison)),
    ]
    if speeds := speed_rows(comparison):
        parts += ["<h2>Speed as served, tokens/s</h2>", html_table(SPEED_COLUMNS, speeds, SPEED_CAPTION)]
    if others := comparison.models[1:]:
        parts += ["<h2>Where it differs</h2><div class=charts>", *_charts(others), "</div>"]
    return document(title, [*parts, _footer(origin)])


def _footer(origin: Origin) -> str:
    facts = f"{origin.date} · surefoot {origin.version} · {origin.machine}"
    return f"<footer><p>{escape(facts)}</p><p><code>{escape(origin.command)}</code></p></footer>"


def _charts(others: list[ComparedModel]) -> list[str]:
    shares = [f"{share * 100:g}%" for share in others[0].divergence_shares]
    lengths = [str(length) for length in others[0].agreement]
    layers = [str(number) for number in range(len(others[0].layer_errors))]
    divergence = Axes("share of positions", "KL that they stay below (nats)", logarithmic=True)
    agreement = Axes("tokens of the continuation", "share of prompts", label="{:.0%}".format)
    return [
        figure(
            "Divergence", shares,
            [Series(model.name, list(model.divergence_shares.values())) for model in others], divergence,
        ),
        figure(
            "Greedy continuations that still agree", lengths,
            [Series(model.name, list(model.agreement.values())) for model in others], agreement,
        ),
        figure(
            "Error after each layer", layers, [Series(model.name, model.layer_errors) for model in others],
            Axes("layer", "rms error, relative to the stream's rms"),
        ),
    ]  # fmt: skip
