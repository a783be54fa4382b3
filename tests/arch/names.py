"""Names of classes, and where each stands."""

import ast
from collections import Counter
from pathlib import Path

from tests.arch.imports import find_modules


def class_names(root: Path) -> Counter[str]:
    names: Counter[str] = Counter()
    for file in find_modules(root).values():
        tree = ast.parse(file.read_text())
        names.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return names
