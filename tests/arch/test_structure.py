"""The listing of the structure counts what is there."""

import io
from pathlib import Path

from rich.console import Console

from tests.arch.structure import Package, Structure, show


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / "src/surefoot" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "core/a.py": 'def f():\n    """Says."""\n    x = 1\n    return x\n',
            "kv/b.py": "from surefoot.core.a import f\nclass C: ...\n",
            "kv/c.py": "from surefoot.kv.b import C\nclass C: ...\n",
        },
    )
    structure = Structure.read(tmp_path)
    assert structure.packages == {
        "core": Package(1, 4, 0, frozenset()),
        "kv": Package(2, 4, 1, frozenset({"core"})),
    }
    assert structure.function_lines == (2,)
    assert (structure.num_imports, structure.num_repeated_names, structure.has_cycle) == (2, 1, False)


def test_shows_two_commits_beside_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"core/a.py": "def f():\n    return 1\ndef g():\n    return 2\n"})
    one, text = Structure.read(tmp_path), io.StringIO()
    show({"before": one, "now": Structure({}, 0, False, (1, 2), 0)}, Console(file=text, width=120))
    assert "before" in text.getvalue()
    assert "not there" in text.getvalue()
