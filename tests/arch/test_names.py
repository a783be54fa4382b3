"""Class names are unique in the whole package, so that a search finds one definition."""

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "surefoot"


def class_names(source: Path) -> Counter[str]:
    names: Counter[str] = Counter()
    for file in source.rglob("*.py"):
        tree = ast.parse(file.read_text())
        names.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return names


def test_class_names_are_unique() -> None:
    assert sorted(name for name, count in class_names(SOURCE).items() if count > 1) == []


def test_a_duplicate_class_name_is_detected(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Step: ...")
    (tmp_path / "b.py").write_text("def f():\n    class Step: ...")
    assert class_names(tmp_path) == {"Step": 2}
