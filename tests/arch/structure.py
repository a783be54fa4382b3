"""Lists the structure of the package: folders, files, lines, imports, lengths of functions.

python -m tests.arch.structure            as it stands
python -m tests.arch.structure 268ea26    and beside it, as it was at a commit
"""

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from tests.arch.imports import find_cycle, find_imports, find_modules, is_ours, layer_of
from tests.arch.names import class_names

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Package:
    """A folder of the package, with those below it."""

    num_files: int
    num_lines: int
    num_inner_imports: int  # between its own files
    imports: frozenset[str]  # other folders


@dataclass(frozen=True)
class Structure:
    """The package at one commit."""

    packages: dict[str, Package]
    num_imports: int  # between files
    has_cycle: bool
    function_lines: tuple[int, ...]  # of each function
    num_repeated_names: int  # class names that stand for several classes

    @classmethod
    def read(cls, root: Path) -> "Structure":
        """root: the repository's."""
        imports = {(one.importer, one.target) for one in find_imports(root) if is_ours(one.target)}
        names = class_names(root)
        return cls(
            dict(_packages(root, imports)),
            len(imports),
            bool(find_cycle(root)),
            tuple(_function_lines(root)),
            sum(count > 1 for count in names.values()),
        )

    def summary(self) -> dict[str, str]:
        lines = self.function_lines
        long = quantiles(lines, n=10)[-1]
        return {
            "files": f"{sum(package.num_files for package in self.packages.values()):,}",
            "lines": f"{sum(package.num_lines for package in self.packages.values()):,}",
            "imports between files": f"{self.num_imports:,}",
            "imports between folders": f"{sum(len(package.imports) for package in self.packages.values()):,}",
            "a cycle of imports": "yes" if self.has_cycle else "no",
            "functions": f"{len(lines):,}",
            "lines of a function: median / 90 % / most": f"{median(lines):g} / {long:g} / {max(lines)}",
            "class names that stand for several classes": str(self.num_repeated_names),
        }


def _packages(root: Path, imports: set[tuple[str, str]]) -> Iterator[tuple[str, Package]]:
    modules = find_modules(root)
    for name in sorted({layer_of(module) for module in modules} - {""}):
        files = [file for module, file in modules.items() if layer_of(module) == name]
        targets = [layer_of(target) for importer, target in imports if layer_of(importer) == name]
        num_lines = sum(len(file.read_text().splitlines()) for file in files)
        yield name, Package(len(files), num_lines, targets.count(name), frozenset(targets) - {name, ""})


def _function_lines(root: Path) -> Iterator[int]:
    """Lines of the body of each function, without its docstring."""
    for file in find_modules(root).values():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def read_commit(commit: str) -> Structure:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return Structure.read(Path(folder))


def show(columns: dict[str, Structure], console: Console) -> None:
    table = Table("", *columns)
    for line in next(iter(columns.values())).summary():
        table.add_row(line, *(structure.summary()[line] for structure in columns.values()))
    console.print(table)
    table = Table("folder", *(f"{name}: files, lines, imports inside, of folders" for name in columns))
    for name in sorted({name for structure in columns.values() for name in structure.packages}):
        table.add_row(name, *(_cell(structure.packages.get(name)) for structure in columns.values()))
    console.print(table)


def _cell(package: Package | None) -> str:
    if package is None:
        return "not there"
    counts = f"{package.num_files}, {package.num_lines:,}, {package.num_inner_imports}, {len(package.imports)}"
    return f"{counts}: {' '.join(sorted(package.imports))}"


if __name__ == "__main__":
    before = {commit: read_commit(commit) for commit in sys.argv[1:]}
    show({**before, "now": Structure.read(ROOT)}, Console())
