"""The tools that build the native tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


SANITIZERS = {"address": "address,undefined,float-cast-overflow", "thread": "thread"}


def find_tool(name: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    assert found, f'{name} is missing: pip install -e ".[dev]"'
    return found


def cmake(*words: str | Path) -> None:
    done = subprocess.run([find_tool("cmake"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stdout + done.stderr, done.stdout + done.stderr
