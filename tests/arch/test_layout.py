"""The tests mirror the source: a folder of tests for each package, and a short list of others."""

import re
from pathlib import Path

from tests.arch.maps import DISTRIBUTIONS

TESTS = Path(__file__).parents[1]
PACKAGES = TESTS.parent / "src" / "surefoot"
# Tests of no single package.
OTHERS = {"arch", "benchmarks", "clients", "docs", "faults", "native", "oracle", "packaging", "page"}


def folders(root: Path) -> set[str]:
    """Folders that contain Python files, as paths below the root."""
    return {str(file.parent.relative_to(root)) for file in root.rglob("*.py")} - {"."}


def test_every_folder_of_tests_mirrors_a_package() -> None:
    tested = {name for name in folders(TESTS) if name.split("/")[0] not in OTHERS}
    assert sorted(tested - folders(PACKAGES) - DISTRIBUTIONS) == []


def test_every_package_has_tests() -> None:
    packages = {name.split("/")[0] for name in folders(PACKAGES) | DISTRIBUTIONS}
    assert sorted(packages - folders(TESTS)) == []


def test_what_tests_share_lies_outside_of_test_modules() -> None:
    """A module of tests that another imports cannot be moved or split by itself."""
    importing = re.compile(r"^\s*(?:from|import) tests\.[\w.]*\btest_\w+", re.MULTILINE)
    found = [str(file.relative_to(TESTS)) for file in TESTS.rglob("*.py") if importing.search(file.read_text())]
    assert found == []
