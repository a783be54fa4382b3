"""The site builds without a warning, and its pages load nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT
from tests.stories import stories_gguf

MAKE = ROOT / "docs/make"
# What a browser loads by itself; a link that a reader may follow is none of it.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\ssrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*\shref=["']?(?:https?:)?//[^"'\s>]+"""
)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^"')]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages, styles = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 30
    assert [found for page in pages for found in LOADED.findall(page.read_text())] == []
    assert [found for style in styles for found in IN_STYLES.findall(style.read_text())] == []


def test_what_is_loaded_from_elsewhere_would_be_found() -> None:
    assert LOADED.search('<script async src="https://a.example/b.js">')
    assert LOADED.search('<link rel="stylesheet" href="//a.example/b.css">')
    assert not LOADED.search('<a href="https://a.example/">')
    assert IN_STYLES.search("src: url(https://a.example/font.woff)")


def test_references_are_rendered(site: Path) -> None:
    http = (site / "reference/http.html").read_text()
    assert "/v1/chat/completions" in http
    assert "ChatRequest" in http
    assert "surefoot serve" in (site / "reference/command.html").read_text()
    assert "SamplingParams" in (site / "reference/python.html").read_text()


def make(script: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, MAKE / script, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_goodput_plot_is_what_its_figures_give(tmp_path: Path) -> None:
    make("goodput.py", str(tmp_path / "plot.svg"))
    assert (tmp_path / "plot.svg").read_text() == (ROOT / "docs/assets/goodput.svg").read_text()


def test_a_terminal_is_recorded(tmp_path: Path) -> None:
    make("terminal.py", str(stories_gguf()), "--tokens", "4", "--out", str(tmp_path / "terminal.svg"))
    for recorded in (tmp_path / "terminal.svg", ROOT / "docs/assets/terminal.svg"):
        last = ElementTree.parse(recorded).getroot()[-1]
        hashes = [line.text.split()[0] for line in last if line.text and re.match(r"[0-9a-f]{64}\b", line.text)]
        assert len(hashes) == 2
        assert hashes[0] == hashes[1]  # the best variant and the portable one
        assert "http://" not in recorded.read_text().replace("http://www.w3.org/2000/svg", "")
