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
POOL = "native_pool_tests"
pytestmark = pytest.mark.slow


@cache
def configure(sanitizer: str) -> Path:
    """The build folder; kept, so that the next run builds only what changed."""
    folder = ROOT / "build" / sanitizer
    options = ["-DSUREFOOT_NATIVE_TESTS=ON", f"-DSUREFOOT_SANITIZE={SANITIZERS[sanitizer]}"]
    cmake("-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", *options)
    return folder


@cache
def build(sanitizer: str, program: str) -> Path:
    folder = configure(sanitizer)
    cmake("--build", folder, "-j", str(usable_cores()), "--target", program)
    return folder / "native" / program


def run(sanitizer: str, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(
        [build(sanitizer, program), *words], capture_output=True, text=True, check=False, env=env, timeout=600
    )


def variant_tests(variant: str) -> str:
    return f"native_tests_{variant}"


def check_clean(sanitizer: str, program: str, *words: str) -> None:
    done = run(sanitizer, program, *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    assert "tests passed" in done.stdout


def test_memory() -> None:
    """In the variant with most intrinsics: a build takes a minute or two. Races of kernels are nightly."""
    check_clean("address", variant_tests(BEST))


def test_pool() -> None:
    """The thread pool by itself, which is built in seconds."""
    check_clean("thread", POOL, "1")
    assert run("thread", POOL, "race").returncode != 0


@pytest.mark.nightly
def test_pool_for_long() -> None:
    check_clean("thread", POOL, "10")


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_clean(sanitizer: str, variant: str) -> None:
    check_clean(sanitizer, variant_tests(variant))


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
    assert run(sanitizer, variant_tests(variant), "nothing").returncode == 0
    assert run(sanitizer, variant_tests(variant), fault).returncode != 0
