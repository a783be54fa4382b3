"""System calls that fail on demand: compiles and configures the library of faults.c."""

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")
KINDS = {
    "write": 1, "sync": 2, "open": 4, "rename": 8, "unlink": 16, "truncate": 32, "fork": 64, "accept": 128,
    "allocate": 256, "read": 512,
}  # fmt: skip
LARGE_BYTES = 64 << 10


@dataclass(frozen=True)
class Fault:
    """The n-th call of these kinds fails. lasting: later calls fail too. torn: half of a write is written."""

    kinds: tuple[str, ...]
    n: int
    error: int = errno.EIO
    lasting: bool = False
    torn: bool = False

    def __str__(self) -> str:
        more = " torn" * self.torn + " and all after it" * self.lasting
        return f"{'/'.join(self.kinds)} number {self.n} with {errno.errorcode[self.error]}{more}"

    @property
    def mask(self) -> int:
        return sum(KINDS[kind] for kind in self.kinds)


@functools.cache
def library() -> Path:
    """Compiled once for each process."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc): faults are not injected")
    path = Path(tempfile.mkdtemp(prefix="surefoot-faults-")) / "faults.so"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True)
    return path


def environment(fault: Fault | None = None, below: Path = Path("/nowhere"), jump_s: int = 0) -> dict[str, str]:
    """Of a process with the library, armed from its start if there is a fault. jump_s: seconds by which its time of day
    jumps at every reading, back and forth."""
    made = {**os.environ, "LD_PRELOAD": str(library()), "FAULT_CLOCK": str(jump_s)}
    if fault is not None:
        words = (fault.mask, fault.n, fault.error, int(fault.lasting), int(fault.torn), LARGE_BYTES, below)
        made["FAULT"] = " ".join(map(str, words))
    return made


class Injector:
    """In a process that has the library already."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        for name in ("fault_hits", "fault_seen"):
            getattr(self._library, name).restype = ctypes.c_long

    def arm(self, fault: Fault, below: Path) -> None:
        """fault.n of 0: calls are counted, none fails."""
        self._library.fault_arm(
            fault.mask, ctypes.c_long(fault.n), fault.error, int(fault.lasting), int(fault.torn), os.fsencode(below),
            ctypes.c_size_t(LARGE_BYTES),
        )  # fmt: skip

    def disarm(self) -> None:
        self.arm(Fault((), 0), Path("/nowhere"))

    @property
    def num_hits(self) -> int:
        return int(self._library.fault_hits())

    @property
    def num_seen(self) -> int:
        return int(self._library.fault_seen())
