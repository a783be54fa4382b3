"""A comparison as one page of HTML that needs nothing else, and as a table for a terminal."""

from html import escape

from rich import box
from rich.table import Table

from surefoot.evaluate.compare import Compared, Comparison
from surefoot.evaluate.svg import Line, chart

COLUMNS = ("model", "size", "perplexity", "mean KL", "99 %", "largest", "flips", "agreed", "tok/s")
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif}
svg .grid{stroke:#ddd}h2{margin-top:2rem}p{color:#555}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}td,th{border-color:#333}svg text{fill:#bbb}
svg .grid{stroke:#333}p{color:#999}}
"""


def rows(comparison: Comparison) -> list[list[str]]:
    return [_row(one) for one in comparison.models]


def _row(one: Compared) -> list[str]:
    fidelity = one.score.fidelity
    lost = [""] * 4
    if fidelity is not None:
        lost = [
            f"{fidelity.mean_kl:.5f}", f"{fidelity.kl_99:.4f}", f"{fidelity.max_kl:.3f}", f"{fidelity.flips:.2%}"
        ]  # fmt: skip
    agreed = f"{one.mean_agreed:.1f}" if fidelity is not None else ""
    speed = f"{one.decode_per_s:.1f}" if one.decode_per_s else ""
    return [one.name, f"{one.nbytes / 1e6:.1f} MB", f"{one.score.perplexity:.4f}", *lost, agreed, speed]


def _caption(comparison: Comparison) -> str:
    original = comparison.models[0].name
    return (
        f"{comparison.num_windows} windows, {comparison.num_tokens} tokens. KL in nats from {original} in float32; "
        f"flips: its likeliest token is another; agreed: tokens of the greedy continuations of "
        f"{comparison.num_continued} prompts, up to the first that differs"
    )


def table(comparison: Comparison) -> Table:
    shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), caption=_caption(comparison), caption_justify="left")
    for number, column in enumerate(COLUMNS):
        # Names give way on a narrow terminal, numbers do not.
        shown.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=bool(number))
    for row in rows(comparison):
        shown.add_row(*row)
    return shown


def page(comparison: Comparison, title: str) -> str:
    others = comparison.models[1:]
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(comparison))
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>",
        f"<table><tr>{head}</tr>{body}</table><p>{escape(_caption(comparison))}</p>",
    ]
    if others:
        parts += _charts(others)
    return "".join([*parts, "</html>"])


def _charts(others: list[Compared]) -> list[str]:
    shares = [f"{share:.1%}" for share in others[0].divergence_shares]
    lengths = [str(length) for length in others[0].agreement]
    layers = [str(number) for number in range(len(others[0].layer_errors))]
    return [
        "<h2>Divergence: the share of positions that stay below</h2>",
        chart(shares, [Line(one.name, list(one.divergence_shares.values())) for one in others], logarithmic=True),
        "<h2>Greedy continuations that still agree, by length</h2>",
        chart(lengths, [Line(one.name, list(one.agreement.values())) for one in others]),
        "<h2>Error of the stream after each layer, beside its size</h2>",
        chart(layers, [Line(one.name, one.layer_errors) for one in others]),
    ]
