"""Options and metrics that the pages name exist."""

import re
import subprocess
import sys

from tests.docs.pages import ROOT

GUIDES = "\n".join(page.read_text() for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])


def test_options_are_of_some_command() -> None:
    named = set(re.findall(r"`(?:surefoot [\w -]*)?(--[a-z][a-z0-9-]+)", GUIDES))
    done = subprocess.run(
        [sys.executable, ROOT / "docs/make/command.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    benchmarks = (ROOT / "benchmarks/__main__.py").read_text()  # `python -m benchmarks`, from a checkout
    known = set(re.findall(r"--[a-z][a-z0-9-]+", done.stdout + benchmarks))
    assert len(named) > 30
    assert sorted(named - known) == []


def test_metrics_are_those_of_the_source() -> None:
    named = set(re.findall(r"`((?:vllm|surefoot):\w+)`", GUIDES))
    layers = [ROOT / "src/surefoot" / layer for layer in ("server", "front", "fleet")]
    source = "\n".join(file.read_text() for layer in layers for file in layer.rglob("*.py"))
    assert len(named) > 20
    assert [name for name in sorted(named) if name.removesuffix("_total") not in source] == []
