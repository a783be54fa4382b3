"""Reads small files of /proc and /sys, below a root that tests can replace."""

from pathlib import Path

ROOT = Path("/")


def read_text(path: Path) -> str:
    """The file's text; empty if the file is missing or cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """The file's integer; None if it has none (cgroup v2 writes `max` for no limit)."""
    text = read_text(path)
    return int(text) if text.lstrip("-").isdigit() else None


def read_table(path: Path) -> dict[str, str]:
    """Lines of `name: value`. The first line of a name counts."""
    table: dict[str, str] = {}
    for line in read_text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            table.setdefault(name.strip(), value.strip())
    return table


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Processors from the kernel's notation, such as `0-3,8,10-11`."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)
