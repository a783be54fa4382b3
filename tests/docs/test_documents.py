"""What the documents show must work, and what they point to must exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import __version__
from tests.docs import reader
from tests.docs.pages import ELSEWHERE, LESSONS, PAGES, ROOT, Shown, blocks, commands, is_elsewhere, once, shown_on

pytestmark = pytest.mark.long

SHOWN = once(shown for page in PAGES for shown in shown_on(page))
LANGUAGES = {"", "console", "json", "nginx", "py", "python", "text", "toml", "yaml"}  # py: an excerpt, which is not run
BY_NAME = {"ids": lambda path: str(path.relative_to(ROOT))}


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    reader.stop()


def test_there_is_something_to_run() -> None:
    texts = {shown.text for shown in SHOWN}
    assert {"surefoot doctor", "surefoot serve model.gguf"} <= texts
    assert sum(shown.is_python for shown in SHOWN) > 5


@pytest.mark.parametrize("shown", SHOWN, ids=str)
def test_what_is_shown_works(shown: Shown) -> None:
    reader.follow(shown)


@pytest.mark.parametrize("page", sorted(set(LESSONS.glob("*.md")) - {LESSONS / "README.md"}), **BY_NAME)
def test_a_lesson_can_be_tried(page: Path) -> None:
    """By snippets whose output stands below them, or by a command."""
    shown = shown_on(page)
    assert shown
    assert all(runnable.printed for runnable in shown if runnable.is_python)


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_no_command_escapes(page: Path) -> None:
    """A command stands in a console block; other blocks show what is not to be typed."""
    for block in blocks(page):
        assert block.language in LANGUAGES, block.language
        assert block.language == "console" or not re.search(r"^\$ ", block.text, re.MULTILINE), block.text
        assert block.language != "json" or reader.is_json(block.text), block.text


def test_what_runs_elsewhere_is_still_shown() -> None:
    typed = [command for page in PAGES for block in blocks(page) for command in commands(block)]
    assert any(is_elsewhere(command) for command in typed)
    assert all(ELSEWHERE.values())


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists() or _is_made(page, target), target


def _is_made(page: Path, target: str) -> bool:
    """Pages that are rendered when the site is built."""
    path = (page.parent / target).resolve()
    return path in {ROOT / "docs/reference" / name for name in ("http.md", "command.md")}


def test_every_design_note_is_in_the_index() -> None:
    index = (ROOT / "docs/design/README.md").read_text()
    notes = {path.name for path in (ROOT / "docs/design").glob("*.md")} - {"README.md"}
    assert [name for name in sorted(notes) if f"]({name})" not in index] == []


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__
    assert len(versions) == len(set(versions))
