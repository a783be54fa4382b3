import math
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from surefoot.charts.lines import Axes, Series, category_chart, line_plot
from tests.charts.clipping import SVG, assert_nothing_is_clipped


def test_a_plot_shows_every_point() -> None:
    root = ElementTree.fromstring(line_plot("a < b", "x", "y", {"one": [(1, 2), (2, 3)], "two": [(1, 1), (2, 0)]}))
    shapes = [child.tag.partition("}")[2] for child in root]
    assert (shapes.count("polyline"), shapes.count("circle")) == (2, 4)
    assert {"a < b", "one", "two", "1", "2"} <= {child.text for child in root}


@given(st.lists(st.floats(1e-9, 9e5), min_size=1, max_size=90), st.booleans())
def test_nothing_is_clipped_whatever_the_values(values: list[float], logarithmic: bool) -> None:
    xs = [f"{number / 10:.1f}%" for number in range(len(values))]
    assert_nothing_is_clipped(category_chart(xs, [Series("a", values)], Axes("across", "up", logarithmic)))


@given(st.floats(1e-9, 1e9))
def test_ticks_are_round_and_cover_the_values(high: float) -> None:
    root = ElementTree.fromstring(category_chart(["a", "b"], [Series("a", [0.0, high])], Axes("across", "up")))
    labels = [
        float(element.text or "") for element in root.iter(f"{SVG}text") if element.attrib["text-anchor"] == "end"
    ]
    assert 3 <= len(labels) <= 7
    assert labels[0] == 0
    assert labels[-1] >= high * (1 - 1e-6)
    assert round(labels[1] / 10 ** math.floor(math.log10(labels[1]) + 1e-9), 6) in (1, 2, 5)
