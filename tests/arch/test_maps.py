"""ARCHITECTURE.md, CONTRIBUTING.md and native/README.md match the source."""

import re
from pathlib import Path

from tests.arch import imports, maps

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_package_is_in_a_table_once() -> None:
    named = maps.first_column(maps.section(ARCHITECTURE, "Layers"))
    assert sorted(named) == sorted(maps.packages(ROOT) | maps.folders_of_packages(ROOT))


def test_planned_layers_have_a_place_and_no_package() -> None:
    planned = imports.LAYERS.keys() - maps.packages(ROOT) - {"__main__", "compress.cli"}
    assert all(f"`{name}` (" in maps.section(ARCHITECTURE, "Layers") for name in planned)


def test_native_folders_are_in_the_table() -> None:
    names = maps.first_column(maps.section(ARCHITECTURE, "The native library"))
    folders = {f"native/{path.name}" for path in (ROOT / "native").iterdir() if path.is_dir()}
    assert {name.removesuffix("/<name>") for name in names} == folders


def test_a_requests_way_names_what_exists() -> None:
    way = maps.section(ARCHITECTURE, "A request's way")
    assert len(maps.names_in(way)) > 10
    assert maps.unknown_names(way, ROOT) == []


def test_a_missing_name_is_detected() -> None:
    assert maps.unknown_names("`Engine.step`, `Engine.leap`, `Stagecoach`", ROOT) == ["Engine.leap", "Stagecoach"]


def test_folders_of_tests_are_packages_or_in_the_table() -> None:
    named = {name.removeprefix("tests/") for name in maps.first_column(maps.section(CONTRIBUTING, "Tests"))}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - maps.packages(ROOT) <= named <= folders


def test_the_page_of_kernels_names_what_exists() -> None:
    """native/README.md: every file, and in the dispatch table every function in the file beside it."""
    native = ROOT / "native"
    page = (native / "README.md").read_text()
    files = set(re.findall(r"`((?:kernels|variants|defaults|include|core)/[\w/]+\.(?:h|cpp))`", page))
    assert [name for name in files if not (native / name).is_file()] == []
    rows = [line.split("|") for line in maps.section(page, "Which function multiplies").splitlines() if "|" in line]
    file = ""
    for cells in rows[2:]:
        file = next(iter(re.findall(r"`((?:kernels|variants)/[\w/]+\.\w+)`", cells[-2])), file)
        for name in re.findall(r"`([A-Z]\w+)", cells[4]):
            assert re.search(rf"\b{name}\b", (native / file).read_text()), f"{name} is not in {file}"
