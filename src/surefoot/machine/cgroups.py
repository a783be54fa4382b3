"""Limits of this process's cgroups, versions 1 and 2. A limit of any group above counts too."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from surefoot.machine.files import ROOT, read_int, read_text


@dataclass(frozen=True)
class _Mount:
    """A mounted cgroup hierarchy."""

    version: int
    top: str  # the group that is visible at `point`; in a container often the group of the container
    point: str  # where it is mounted
    controllers: frozenset[str]  # version 1 only


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        location, _, what = line.partition(" - ")
        kind, _, options = what.partition(" ")
        if kind in ("cgroup", "cgroup2"):
            top, point = location.split(" ")[3:5]
            yield _Mount(2 if kind == "cgroup2" else 1, top, point, frozenset(options.split(" ")[-1].split(",")))


def _group(root: Path, mount: _Mount, controller: str) -> str | None:
    """The path of this process's group in the mount's hierarchy, if that can have the controller."""
    if mount.version == 1 and controller not in mount.controllers:
        return None
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" if mount.version == 2 else controller in controllers.split(","):
            return path
    return None


def group_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of this process's group and of every visible group above it, for each hierarchy that can have the
    controller."""
    for mount in _mounts(root):
        group = _group(root, mount, controller)
        if group is None:
            continue
        top, path = PurePosixPath(mount.top), PurePosixPath(group)
        # A group outside the mount ("/.." in a namespace, or a host's path in a container) is the top itself.
        inside = path.relative_to(top) if path.is_relative_to(top) and ".." not in path.parts else PurePosixPath()
        point = root / mount.point.lstrip("/")
        yield from (point / step for step in (inside, *inside.parents))


def _quota(folder: Path) -> float | None:
    """CPU time per period that the group may use, in cores, from the files of either version."""
    quota, _, period = read_text(folder / "cpu.max").partition(" ")
    if not quota:
        quota = read_text(folder / "cpu.cfs_quota_us")
        period = read_text(folder / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit():  # "max", "-1" or no such file
        return None
    return int(quota) / int(period)


def _memory(folder: Path) -> Iterator[int]:
    """The group's memory limits in bytes. memory.high counts as a limit, since the kernel throttles beyond it."""
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        limit = read_int(folder / name)
        if limit is not None:
            yield limit
    for line in read_text(folder / "memory.stat").splitlines():
        if line.startswith("hierarchical_memory_limit "):  # version 1: includes groups that are not visible
            yield int(line.split()[1])


def cpu_quota(root: Path = ROOT) -> float | None:
    """The tightest quota, in cores; None: no quota."""
    quotas = (_quota(folder) for folder in group_folders("cpu", root))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The tightest memory limit; None: no limit. Version 1 writes "no limit" as a number beyond any memory."""
    limits = (limit for folder in group_folders("memory", root) for limit in _memory(folder))
    return min((limit for limit in limits if limit < 1 << 60), default=None)


def throttled_s(root: Path = ROOT) -> float:
    """Seconds for which a CPU quota has throttled this process so far, in the group that was throttled most."""
    return max((_throttled_s(folder) for folder in group_folders("cpu", root)), default=0.0)


def _throttled_s(folder: Path) -> float:
    for line in read_text(folder / "cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == "throttled_usec" and value.isdigit():
            return int(value) / 1e6
        if name == "throttled_time" and value.isdigit():  # version 1: nanoseconds
            return int(value) / 1e9
    return 0.0
