"""Asserts that a chart's text and lines are inside its picture."""

from xml.etree import ElementTree

from surefoot.charts.svg import FONT_SIZE

SVG = "{http://www.w3.org/2000/svg}"


LETTER = 0.62  # upper bound of a letter's width, as a share of the font size


def assert_nothing_is_clipped(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter(f"{SVG}text"):
        x, y, text = float(element.attrib["x"]), float(element.attrib["y"]), element.text or ""
        length = len(text) * LETTER * FONT_SIZE
        left = {"start": x, "middle": x - length / 2, "end": x - length}[element.attrib["text-anchor"]]
        assert left >= 0, text
        assert left + length <= width, text
        assert FONT_SIZE <= y <= height - FONT_SIZE * 0.3, text
    for element in root.iter(f"{SVG}polyline"):
        for point in element.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
