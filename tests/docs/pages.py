"""What the pages show: their fenced blocks, and the commands in them."""

import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "docs/lessons"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"keys\.toml|\.jsonl|\.html|smaller|mixed")  # files that pages make
# Commands that other tests or a person run, by how they begin, and why they are not run here.
ELSEWHERE = {
    "pip install": "tests/packaging installs the wheel in a clean environment",
    "python3 -m venv": "tests/packaging makes one",
    "pytest": "this is pytest",
    "cmake": "tests/native builds the libraries",
    "./dev": "tests/docs/test_dev.py",
    "mkdocs": "test_site.py builds the site",
    "packaging/build": "tests/packaging builds the wheel",
    "packaging/image/build": "needs root and Debian's packages; tests/packaging builds the image",
    "docker": "needs an engine of containers; tests/packaging builds the image",
    "podman": "needs an engine of containers; tests/packaging builds the image",
    "buildah": "needs an engine of containers; tests/packaging builds the image",
    "systemctl": "needs a system with systemd",
    "sudo": "needs root",
    "git": "needs a network",
    **dict.fromkeys(
        [f"python docs/cookbook/{path.name}" for path in ROOT.glob("docs/cookbook/*.py")],
        "test_cookbook.py runs every script",
    ),
}


@dataclass(frozen=True)
class Block:
    page: str  # the page's path in the repository
    language: str
    text: str


@dataclass(frozen=True)
class Shown:
    """Something that a page shows and that must work."""

    page: str
    number: int  # its place among those of the page
    text: str
    is_python: bool
    printed: str | None = None  # what the page says that it prints, where it is checked: in lessons

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


def script(name: str) -> ModuleType:
    """A script of docs/make as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/make/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path) -> list[Block]:
    name = str(page.relative_to(ROOT))
    return [Block(name, language, text) for _, language, text in FENCE.findall(page.read_text())]


def commands(block: Block) -> list[str]:
    """The lines of a console block that a reader types; the others are output."""
    return [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]


def is_elsewhere(command: str) -> bool:
    return any(command == start or command.startswith(f"{start} ") for start in ELSEWHERE)


def shown_on(page: Path) -> list[Shown]:
    """In the page's order, since what a page makes it may use below."""
    name = str(page.relative_to(ROOT))
    return [Shown(name, number, *runnable) for number, runnable in enumerate(_runnable(page))]


def once(shown: Iterable[Shown]) -> list[Shown]:
    """Without what another page shows too, unless it works on files that the page makes."""
    found: dict[str, Shown] = {}
    for one in shown:
        found.setdefault(f"{one.page} {one.text}" if MADE.search(one.text) else one.text, one)
    return list(found.values())


def _runnable(page: Path) -> Iterator[tuple[str, bool, str | None]]:
    shown = blocks(page)
    for number, block in enumerate(shown):
        if block.language == "python":
            below = shown[number + 1 : number + 2] if page.parent == LESSONS else []
            yield block.text, True, next((text.text for text in below if text.language == "text"), None)
        elif block.language == "console":
            yield from ((command, False, None) for command in commands(block) if not is_elsewhere(command))
