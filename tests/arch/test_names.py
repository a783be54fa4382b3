"""Class names are unique in the whole package, so that a search finds one definition."""

from pathlib import Path

from tests.arch.names import class_names

ROOT = Path(__file__).parents[2]


def test_class_names_are_unique() -> None:
    assert sorted(name for name, count in class_names(ROOT).items() if count > 1) == []


def test_a_duplicate_class_name_is_detected(tmp_path: Path) -> None:
    package = tmp_path / "src/surefoot"
    package.mkdir(parents=True)
    (package / "a.py").write_text("class Step: ...")
    (package / "b.py").write_text("def f():\n    class Step: ...")
    assert class_names(tmp_path) == {"Step": 2}
