"""Whether a chart's text and lines lie inside its picture."""

from xml.etree import ElementTree

from surefoot.charts.svg import FONT_SIZE

SVG = "{http://www.w3.org/2000/svg}"


LETTER = 0.62  # of a font's size: as wide as digits and small letters of common fonts are, or wider


def assert_nothing_is_clipped(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter(f"{SVG}text"):
        x, y, text = float(element.attrib["x"]), float(element.attrib["y"]), element.text or ""
        long = len(text) * LETTER * FONT_SIZE
        left = {"start": x, "middle": x - long / 2, "end": x - long}[element.attrib["text-anchor"]]
        assert left >= 0, text
        assert left + long <= width, text
        assert FONT_SIZE <= y <= height - FONT_SIZE * 0.3, text
    for element in root.iter(f"{SVG}polyline"):
        for point in element.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
