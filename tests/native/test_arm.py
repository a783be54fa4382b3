"""The native tests, cross-compiled for 64-bit ARM and run in emulation: every number as on this machine.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static; skipped where they are not installed.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from tests.native.sanitizers import ROOT, SANITIZERS, cmake, find_tool

TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
EMULATOR = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-cpu")
# The variant, and a processor that has what it needs and no more; `max` has all.
PROCESSORS = [("portable", "cortex-a72"), ("neon", "cortex-a76"), ("neon", "max"), ("i8mm", "max")]
MAX_S = 3600.0  # for one run of a test program: about a minute, and twenty at idle priority on a busy machine
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@cache
def build(folder: str, variant: str, *options: str | Path) -> Path:
    """The variant's test program."""
    path, ninja = ROOT / "build" / folder, f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}"
    cmake("-S", ROOT, "-B", path, "-G", "Ninja", ninja, "-DSUREFOOT_NATIVE_TESTS=ON", *options)
    cmake("--build", path, "-j", str(usable_cores()), "--target", f"native_tests_{variant}")
    return path / "native" / f"native_tests_{variant}"


def build_for_arm(variant: str, folder: str = "aarch64", *options: str) -> Path:
    return build(folder, variant, f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'native/toolchains/aarch64.cmake'}", *options)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # LeakSanitizer does not run under an emulator
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=MAX_S)


def digests(*command: str | Path) -> dict[str, str]:
    """A hash of the numbers of each test."""
    done = run(*command)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    assert "tests passed" in done.stdout
    return dict(re.findall(r"^(\w+ \w+) ([0-9a-f]{16})$", done.stdout, re.MULTILINE))


def test_gives_the_bits_of_this_machine() -> None:
    """In one variant and with buffers on the heap: ARM must not rot by day."""
    there = digests(*EMULATOR, "max", build_for_arm("i8mm"), "brief")
    assert there == digests(build("native", "portable"), "brief")


@pytest.mark.nightly
@pytest.mark.parametrize(("variant", "processor"), PROCESSORS)
def test_every_variant_gives_the_bits_of_this_machine(variant: str, processor: str) -> None:
    assert digests(*EMULATOR, processor, build_for_arm(variant)) == digests(build("native", "portable"))


def sanitized(variant: str) -> tuple[str | Path, ...]:
    """The command of the variant's test program with AddressSanitizer and UBSan."""
    program = build_for_arm(variant, "aarch64-address", f"-DSUREFOOT_SANITIZE={SANITIZERS['address']}")
    return *EMULATOR, "max", program


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["neon", "i8mm"])
def test_memory(variant: str) -> None:
    """With buffers on the heap; before guard pages the processor itself finds what is touched after them."""
    assert digests(*sanitized(variant), "brief") == digests(build("native", "portable"), "brief")


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["overrun", "overflow"])
def test_faults_would_be_found(fault: str) -> None:
    assert run(*sanitized("i8mm"), "nothing").returncode == 0
    assert run(*sanitized("i8mm"), fault).returncode != 0
