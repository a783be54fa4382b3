"""The native tests of every variant under AddressSanitizer with UBSan, and under ThreadSanitizer."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from surefoot.ops import VariantError
from surefoot.ops.backend import NEEDS, choose_variant

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
    """The folder with one test program per variant; kept, so that the next run builds only what changed."""
    folder, cmake = ROOT / "build" / sanitizer, find_tool("cmake")
    options = ["-DSUREFOOT_NATIVE_TESTS=ON", f"-DSUREFOOT_SANITIZE={SANITIZERS[sanitizer]}"]
    configure = [cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options]
    for command in (configure, [cmake, "--build", folder, "--target", "native_tests", "-j", str(usable_cores())]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout + done.stderr, done.stdout + done.stderr
    return folder / "native"


def run(sanitizer: str, variant: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = build(sanitizer) / f"native_tests_{variant}"
    env = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, env=env, timeout=600)


@pytest.mark.parametrize("variant", list(NEEDS))
@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_clean(sanitizer: str, variant: str) -> None:
    try:
        choose_variant(variant)
    except VariantError as lacking:
        pytest.skip(str(lacking))
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
