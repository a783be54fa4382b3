"""Small files of /proc and /sys, read below a root so that tests can bring a machine of their own."""

from pathlib import Path

ROOT = Path("/")


def read_text(path: Path) -> str:
    """The file's text, or nothing where it is missing or closed to us."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """The file's one whole number, or None where there is none (cgroup v2 writes `max` for no limit)."""
    text = read_text(path)
    return int(text) if text.lstrip("-").isdigit() else None


def read_table(path: Path) -> dict[str, str]:
    """Lines of `name: value`; of a repeated name the first counts."""
    table: dict[str, str] = {}
    for line in read_text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            table.setdefault(name.strip(), value.strip())
    return table


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's `0-3,8,10-11`."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)
