"""The C++ sources are laid out as .clang-format says, at most 120 columns."""

import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.native.sanitizers import find_tool

ROOT = Path(__file__).parents[2]


def native_sources() -> list[Path]:
    return sorted(path for pattern in ("*.h", "*.cpp") for path in (ROOT / "native").rglob(pattern))


def test_formatted() -> None:
    command = [find_tool("clang-format"), "--dry-run", "-Werror", *native_sources()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"clang-format {version('clang-format')}\n{done.stderr[:4000]}"


def test_columns() -> None:
    for path in native_sources():
        long = [i for i, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not long, f"{path}: lines {long}"
