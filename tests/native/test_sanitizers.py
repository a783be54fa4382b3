"""The native tests of every variant under AddressSanitizer with UBSan, and under ThreadSanitizer."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from surefoot.ops import supported_variants

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined,float-cast-overflow", "thread": "thread"}
pytestmark = pytest.mark.slow


def find_tool(name: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    assert found, f'{name} is missing: pip install -e ".[dev]"'
    return found


@cache
def build(sanitizer: str) -> Path:
    """The folder with a test program for each variant that runs here; kept, so that the next run builds only what
    changed."""
    folder, cmake = ROOT / "build" / sanitizer, find_tool("cmake")
    options = ["-DSUREFOOT_NATIVE_TESTS=ON", f"-DSUREFOOT_SANITIZE={SANITIZERS[sanitizer]}"]
    configure = [cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options]
    programs = [f"native_tests_{variant}" for variant in supported_variants()]
    for command in (configure, [cmake, "--build", folder, "-j", str(usable_cores()), "--target", *programs]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout + done.stderr, done.stdout + done.stderr
    return folder / "native"


def run(sanitizer: str, variant: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = build(sanitizer) / f"native_tests_{variant}"
    env = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, env=env, timeout=600)


@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_clean(sanitizer: str, variant: str) -> None:
    done = run(sanitizer, variant)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    assert "tests passed" in done.stdout


@pytest.mark.parametrize(
    ("sanitizer", "fault"),
    [("address", "overrun"), ("address", "overrun-guarded"), ("address", "overflow"), ("thread", "race")],
)
def test_faults_would_be_found(sanitizer: str, fault: str) -> None:
    assert run(sanitizer, "portable", "nothing").returncode == 0
    assert run(sanitizer, "portable", fault).returncode != 0
