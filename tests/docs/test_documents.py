"""What the documents show must work, and what they point to must exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories import stories_gguf

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Pages whose console and Python blocks are run; model.gguf in them is a small real model.
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/use.md",
    ROOT / "docs/serving.md",
    *sorted((ROOT / "docs/lessons").glob("*.md")),
]


def blocks(language: str) -> list[str]:
    text = "".join(page.read_text() for page in PAGES)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    """Lines of console blocks that call surefoot or python."""
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line.startswith(("surefoot ", "python "))]


def run(command: list[str]) -> None:
    if any("model.gguf" in word for word in command):
        command = [word.replace("model.gguf", str(stories_gguf())) for word in command]
    # No input: a conversation ends at once.
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_run() -> None:
    assert "surefoot doctor" in commands()
    assert "surefoot chat model.gguf" in commands()
    assert len(blocks("python")) > 1


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str) -> None:
    program, *words = shlex.split(command)
    # The command by its module, so that it need not be installed; tests/packaging runs the installed one.
    start = ["-m", "surefoot"] if program == "surefoot" else []
    run([sys.executable, *start, *words])


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_examples_run(number: int) -> None:
    run([sys.executable, "-c", blocks("python")[number]])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_every_design_note_is_in_the_index() -> None:
    index = (ROOT / "docs/design/README.md").read_text()
    notes = {path.name for path in (ROOT / "docs/design").glob("*.md")} - {"README.md"}
    assert [name for name in sorted(notes) if f"]({name})" not in index] == []
