"""The tests mirror the source: a folder of tests for each package, and a short list of others."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGES = TESTS.parent / "src" / "surefoot"
# Tests of no single package.
OTHERS = {"arch", "benchmarks", "clients", "docs", "faults", "native", "packaging"}


def folders(root: Path) -> set[str]:
    """Folders that contain Python files, as paths below the root."""
    return {str(file.parent.relative_to(root)) for file in root.rglob("*.py")} - {"."}


def test_every_folder_of_tests_mirrors_a_package() -> None:
    tested = {name for name in folders(TESTS) if name.split("/")[0] not in OTHERS}
    assert sorted(tested - folders(PACKAGES)) == []


def test_every_package_has_tests() -> None:
    packages = {name.split("/")[0] for name in folders(PACKAGES)}
    assert sorted(packages - folders(TESTS)) == []
