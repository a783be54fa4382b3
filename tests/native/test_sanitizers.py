"""The native tests under AddressSanitizer with UBSan, and under ThreadSanitizer; at night in every variant."""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from surefoot.ops import supported_variants
from tests.native.sanitizers import ROOT, SANITIZERS, cmake, find_tool

BEST = supported_variants()[0]
pytestmark = pytest.mark.slow


@cache
def configure(sanitizer: str) -> Path:
    """The build folder; kept, so that the next run builds only what changed."""
    folder = ROOT / "build" / sanitizer
    options = ["-DSUREFOOT_NATIVE_TESTS=ON", f"-DSUREFOOT_SANITIZE={SANITIZERS[sanitizer]}"]
    cmake("-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options)
    return folder


@cache
def build(sanitizer: str, variant: str) -> Path:
    """The variant's test program."""
    folder, program = configure(sanitizer), f"native_tests_{variant}"
    cmake("--build", folder, "-j", str(usable_cores()), "--target", program)
    return folder / "native" / program


def run(sanitizer: str, variant: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(
        [build(sanitizer, variant), *words], capture_output=True, text=True, check=False, env=env, timeout=600
    )


def check_clean(sanitizer: str, variant: str) -> None:
    done = run(sanitizer, variant)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    assert "tests passed" in done.stdout


def test_memory() -> None:
    """In the variant with most intrinsics: a build takes a minute or two. Races of threads are nightly."""
    check_clean("address", BEST)


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_clean(sanitizer: str, variant: str) -> None:
    check_clean(sanitizer, variant)


@pytest.mark.parametrize(
    ("sanitizer", "variant", "fault"),
    [
        ("address", BEST, "overrun"),
        ("address", BEST, "overrun-guarded"),
        ("address", BEST, "overflow"),
        pytest.param("thread", BEST, "race", marks=pytest.mark.nightly),
    ],
)
def test_faults_would_be_found(sanitizer: str, variant: str, fault: str) -> None:
    assert run(sanitizer, variant, "nothing").returncode == 0
    assert run(sanitizer, variant, fault).returncode != 0
