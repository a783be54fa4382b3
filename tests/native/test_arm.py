"""The native tests, cross-compiled for 64-bit ARM and run in emulation: every number as on this machine.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static; skipped where they are not installed.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from surefoot.machine import usable_cores
from tests.native.test_sanitizers import ROOT, cmake, find_tool

TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
EMULATOR = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-cpu")
# The variant, and a processor that has what it needs and no more; `max` has all.
PROCESSORS = [("portable", "cortex-a72"), ("neon", "cortex-a76"), ("neon", "max"), ("i8mm", "max")]
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


def build_for_arm(variant: str) -> Path:
    return build("aarch64", variant, f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'native/toolchains/aarch64.cmake'}")


def digests(*command: str | Path) -> dict[str, str]:
    """A hash of the numbers of each test."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
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
