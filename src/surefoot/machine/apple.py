"""macOS, which has neither /proc nor /sys: cores and memory by sysctl. Written from its documentation, never run."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

Sysctl = Callable[[str], str]  # the value of a name; empty if the kernel knows none of that name


@dataclass(frozen=True)
class Mac:
    """What sysctl tells of the machine."""

    model: str
    fast_cores: int  # the slower ones of an Apple processor would hold up the others
    memory_bytes: int


def sysctl(name: str) -> str:
    return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False).stdout.strip()


def mac(ask: Sysctl = sysctl) -> Mac:
    fast_cores = ask("hw.perflevel0.physicalcpu") or ask("hw.physicalcpu")
    return Mac(ask("machdep.cpu.brand_string"), int(fast_cores or 0), int(ask("hw.memsize") or 0))
