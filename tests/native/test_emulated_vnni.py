"""Variants that need VNNI, compiled with its products emulated: their kernels equal the oracle on any machine.

The libraries stand in a folder of their own; a process that reads them from there runs the operations' tests.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from surefoot.ops.backend import cpu_features
from tests.native.sanitizers import ROOT, cmake, find_tool

FOLDER = ROOT / "build" / "emulated"
RUN = """
import sys
from pathlib import Path
import pytest
from surefoot.ops import backend
backend.LIBRARIES = Path(sys.argv[1])
sys.exit(pytest.main(sys.argv[2:]))
"""
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@cache
def build(*variants: str) -> Path:
    ninja = f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}"
    cmake("-S", ROOT, "-B", FOLDER, "-G", "Ninja", ninja, "-DSUREFOOT_EMULATE_VNNI=ON")
    targets = [word for variant in variants for word in ("--target", f"surefoot_{variant}")]
    cmake("--build", FOLDER, "-j", str(usable_cores()), *targets)
    return FOLDER / "native"


@pytest.mark.parametrize(("variant", "needs"), [("avxvnni", "avx2"), ("avx512", "avx512")])
@pytest.mark.parametrize("tests", ["test_linear.py", "test_experts.py", "test_attention.py"])
def test_kernels_equal_the_oracle(variant: str, needs: str, tests: str) -> None:
    if needs not in cpu_features():
        pytest.skip(f"{variant} needs {needs} even where VNNI is emulated")
    words = ["-q", "-k", variant, "-p", "no:cacheprovider", f"tests/ops/{tests}"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, build("portable", variant), *words], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
