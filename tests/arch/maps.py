"""Packages and names in ARCHITECTURE.md, and those in the syntax tree: nothing is executed."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.arch.imports import PACKAGES, find_modules

DISTRIBUTIONS = {name.removeprefix("surefoot_") for name in PACKAGES} - {"surefoot"}
Members = dict[str, set[str]]  # the names inside a class, or nothing for a function


def section(page: str, title: str) -> str:
    """The text below a heading of the second level."""
    match = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert match is not None, f"no section {title}"
    return match[1]


def first_column(text: str) -> list[str]:
    """The names in backticks of the first column of a section's table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]


def packages(root: Path) -> set[str]:
    """surefoot's own; any other distribution is one."""
    return {path.parent.name for path in (root / PACKAGES["surefoot"]).glob("*/__init__.py")} | DISTRIBUTIONS


def folders_of_packages(root: Path) -> set[str]:
    """Packages inside packages, as `server/routes`."""
    paths = (root / PACKAGES["surefoot"]).glob("*/*/__init__.py")
    return {f"{path.parent.parent.name}/{path.parent.name}" for path in paths}


def names_in(text: str) -> list[str]:
    """`Name`, `Name.method` and `function` in backticks; a path or a word in a sentence is none of them."""
    return re.findall(r"`([A-Za-z_][\w.]*)`", text)


def definitions(root: Path) -> Members:
    """Classes and functions of all modules, by name: with methods, properties and fields of the class."""
    members: Members = defaultdict(set)
    for file in find_modules(root).values():
        for node in ast.parse(file.read_text(), str(file)).body:
            if isinstance(node, ast.ClassDef):
                members[node.name].update(_members(node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                members[node.name].update()
    return members


def _members(node: ast.ClassDef) -> set[str]:
    methods = {child.name for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)}
    fields = {child.target.id for child in node.body if _is_field(child)}  # type: ignore[attr-defined]
    return methods | fields


def _is_field(child: ast.stmt) -> bool:
    return isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)


def unknown_names(text: str, root: Path) -> list[str]:
    """Names that no module defines."""
    known, layers = definitions(root), packages(root)
    return [name for name in names_in(text) if not _is_known(name, known, layers)]


def _is_known(name: str, known: Members, layers: set[str]) -> bool:
    owner, _, member = name.partition(".")
    if not member:
        return owner in known or owner in layers
    return member in known.get(owner, set())
