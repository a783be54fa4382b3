"""The HTML page of a comparison."""

import io
from html.parser import HTMLParser

import pytest
from rich.console import Console

from surefoot.evaluate.compare import ComparedModel, Comparison
from surefoot.evaluate.page import Origin, page, tables
from surefoot.evaluate.scores import Fidelity, Score
from surefoot.evaluate.speed import Rate, ServedSpeed
from surefoot.evaluate.verdict import verdicts
from tests.charts.clipping import assert_nothing_is_clipped

DIVERGED = Fidelity(0.039861, 0.296031, 12.73864, 0.1006, 2048)
LONG_NAME = "2: a-long-name-of-a-model-in-4-bits.gguf"
ORIGIN = Origin("2026-01-02 03:04 UTC", "1.2.3", "avx2, 2 threads", "surefoot eval compare a.gguf '<b>.gguf'")


def served(decode: float, best: float | None = None) -> ServedSpeed:
    return ServedSpeed(Rate(1000.0, 1234.5), Rate(decode, best or decode * 1.1))


def compared(
    name: str, fidelity: Fidelity | None, nbytes: int = 35_604_000_000, decode: float = 123.4
) -> ComparedModel:
    arithmetic = "float32" if fidelity is None else "integers"
    score = Score(113.2147 if fidelity is None else 114.5, 0.5, 2048, fidelity)
    shares, agreement, errors = (
        {0.1: 1e-6, 0.5: 0.001, 0.999: 2.5},
        {1: 1.0, 2: 0.9, 64: 0.5},
        [0.001 * i for i in range(40)],
    )
    return ComparedModel(name, nbytes, arithmetic, score, shares, agreement, 128.0, errors, served(decode))


def comparison(*others: ComparedModel) -> Comparison:
    return Comparison(4, 2048, 4, [compared("a.gguf", None), *(others or [compared(LONG_NAME, DIVERGED)])])


def test_numbers_stay_whole_on_a_terminal_of_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(*tables(comparison()))
    shown = console.file.getvalue().splitlines()
    for whole in (
        ["35604.0", "MB", "114.5000", "0.03986", "0.2960", "12.739", "10.06%", "128.0"],
        ["123.4", "135.7", "1000.0", "1234.5"],
    ):
        assert any(line.split()[-len(whole) :] == whole for line in shown), shown
    assert LONG_NAME.replace(" ", "") in "".join(line.split()[0] for line in shown if line.strip())


def test_the_page_states_the_arithmetic_of_reference_and_speeds() -> None:
    console = Console(file=io.StringIO(), width=300)
    console.print(*tables(comparison()))
    shown = console.file.getvalue()
    assert "a.gguf (float32)" in shown
    assert f"{LONG_NAME} (integers)" in shown
    assert "as served" in shown


def test_the_verdict_is_a_sentence() -> None:
    other = compared("b.gguf", DIVERGED, nbytes=8_901_000_000, decode=160.4)
    assert verdicts(comparison(other)) == [
        "b.gguf loses 0.04 nats a token beside a.gguf in float32 (perplexity +1.14%), takes 25% of its bytes and "
        "decodes 1.3 times as fast (both as served)."
    ]


@pytest.mark.parametrize(("kl", "shown"), [(0.0000844, "0.000084"), (0.0123, "0.012"), (1.26, "1.3"), (0.0, "0")])
def test_the_loss_has_no_exponent(kl: float, shown: str) -> None:
    other = compared("b.gguf", Fidelity(kl, 1.0, 1.0, 0.1, 2048))
    assert f"loses {shown} nats" in verdicts(comparison(other))[0]


@pytest.mark.parametrize(("median", "best"), [(124.0, 140.0), (150.0, 120.0), (121.0, 119.0)])
def test_a_difference_within_the_noise_is_not_reported(median: float, best: float) -> None:
    original, other = compared("a.gguf", None), compared("b.gguf", DIVERGED)
    models = [original, ComparedModel(**{**vars(other), "served": served(median, best)})]
    assert "decodes about as fast" in verdicts(Comparison(1, 1, 1, models))[0]


class ParsedPage(HTMLParser):
    """The page's elements and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_verdict_date_version_machine_and_command() -> None:
    compared_models = comparison()
    parsed = ParsedPage(page(compared_models, "a.gguf & <co>", ORIGIN))
    for fact in (
        *verdicts(compared_models),
        ORIGIN.date,
        "surefoot 1.2.3",
        ORIGIN.machine,
        ORIGIN.command,
        "as served",
        "(float32)",
    ):
        assert fact in parsed.text, fact
    for title in ("share of positions", "KL that they stay below (nats)", "tokens of the continuation", "layer"):
        assert title in parsed.text, title
    assert parsed.text.index(verdicts(compared_models)[0]) < parsed.text.index("mean KL")
    assert "&lt;co&gt;" in page(compared_models, "a.gguf & <co>", ORIGIN)


def test_the_page_is_self_contained_and_fits_a_phone() -> None:
    text = page(comparison(), "a", ORIGIN)
    parsed = ParsedPage(text)
    assert not [tag for tag, attributes in parsed.tags if tag in ("script", "link", "img") or "src" in attributes]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    viewport = [attributes["content"] for tag, attributes in parsed.tags if attributes.get("name") == "viewport"]
    assert viewport == ["width=device-width, initial-scale=1"]
    order = [(tag, attributes.get("class")) for tag, attributes in parsed.tags]
    assert all(order[index - 1] == ("div", "scroll") for index, (tag, _) in enumerate(order) if tag == "table")


def test_nothing_on_the_page_is_clipped() -> None:
    text = page(comparison(), "a", ORIGIN)
    charts = [f"<svg{part.split('</svg>')[0]}</svg>" for part in text.split("<svg")[1:]]
    assert len(charts) == 3
    for svg in charts:
        assert_nothing_is_clipped(svg)


def test_the_chart_says_if_there_is_no_difference() -> None:
    same = compared("b.gguf", Fidelity(0, 0, 0, 0, 1))
    same = ComparedModel(**{**vars(same), "divergence_shares": {0.5: 0.0}, "layer_errors": [0.0, 0.0]})
    assert "There is no difference to draw." in page(comparison(same), "a", ORIGIN)
