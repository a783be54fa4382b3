"""Reports as one self-contained HTML page: a frame, tables and figures. Narrow screens and dark ones too."""

from collections.abc import Iterable, Sequence
from html import escape

from surefoot.charts.lines import Axes, Series, category_chart
from surefoot.charts.svg import colour_of

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:1.5rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin-top:2rem}p,footer{overflow-wrap:anywhere}
.verdict{font-size:1.1rem}.note,footer{color:#555;font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;min-width:100%}
td,th{padding:.3rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}svg text{font-family:system-ui,sans-serif}
svg .grid{stroke:#ddd}ul.legend{list-style:none;margin:0;padding:0;font-size:.9rem;overflow-wrap:anywhere}
.legend span{display:inline-block;width:1.2em;height:.25em;margin-right:.5em;vertical-align:middle}
@media(max-width:40rem){table{font-size:.85rem}td,th{padding:.3rem .35rem}td:first-child,th:first-child{min-width:7rem}}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}td,th{border-color:#333}svg text{fill:#bbb}
svg .grid{stroke:#333}.note,footer{color:#999}}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """parts: HTML below the heading."""
    head = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>"
    )
    return "".join([head, *parts, "</html>"])


def html_table(columns: Sequence[str], cells: list[list[str]], caption: str) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    table = f"<table><tr>{head}</tr>{body}</table>"
    return f"<div class=scroll tabindex=0>{table}</div><p class=note>{escape(caption)}</p>"


def figure(title: str, xs: Sequence[str], lines: Sequence[Series], axes: Axes) -> str:
    drawn = category_chart(xs, lines, axes) or "<p class=note>There is no difference to draw.</p>"
    legend = "".join(
        f"<li><span style='background:{colour_of(number)}'></span>{escape(line.name)}</li>"
        for number, line in enumerate(lines)
    )
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawn}<ul class=legend>{legend}</ul></figure>"
