"""Names of classes, and where each stands."""

import ast
from collections import Counter
from pathlib import Path


def class_names(source: Path) -> Counter[str]:
    names: Counter[str] = Counter()
    for file in source.rglob("*.py"):
        tree = ast.parse(file.read_text())
        names.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return names
