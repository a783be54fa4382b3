"""Cores, memory and nodes from /proc and /sys trees of machines that we do not have."""

import os
from pathlib import Path

import pytest

from surefoot import machine
from surefoot.machine.apple import Mac, mac
from surefoot.machine.cgroups import cpu_quota, memory_limit_bytes, throttled_s
from surefoot.machine.files import parse_cpu_list
from surefoot.machine.limits import Cores, Memory

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
NO_LIMIT_V1 = "9223372036854771712"


class Tree:
    """A fake root: files by path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def v1_mount(controllers: str, top: str = "/") -> str:
    return f"32 31 0:29 {top} /sys/fs/cgroup/{controllers} rw,relatime - cgroup cgroup rw,{controllers}"


def test_no_cgroups_means_no_limit(tree: Tree) -> None:
    assert cpu_quota(tree.root) is None
    assert memory_limit_bytes(tree.root) is None


def test_unreadable_lines_are_passed_over(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", "nonsense\n" + V2_MOUNT)
    (tree.root / "proc/self/cgroup").write_bytes(b"0::/caf\xe9\n")
    tree.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert cpu_quota(tree.root) == 2


def test_v2_limits_of_any_ancestor_count(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("proc/self/cgroup", "0::/kubepods/pod7/box")
    tree.write("sys/fs/cgroup/kubepods/pod7/box/cpu.max", "max 100000")
    tree.write("sys/fs/cgroup/kubepods/pod7/box/memory.max", "8000000000")
    tree.write("sys/fs/cgroup/kubepods/pod7/cpu.max", "250000 100000")
    tree.write("sys/fs/cgroup/kubepods/cpu.max", "4000000 100000")
    tree.write("sys/fs/cgroup/kubepods/memory.max", "6000000000")
    assert cpu_quota(tree.root) == 2.5
    assert memory_limit_bytes(tree.root) == 6_000_000_000


def test_v2_inside_a_namespace_the_mount_is_our_group(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("proc/self/cgroup", "0::/")
    tree.write("sys/fs/cgroup/cpu.max", "50000 100000")
    tree.write("sys/fs/cgroup/memory.max", "max")
    tree.write("sys/fs/cgroup/memory.high", "1000000")
    assert cpu_quota(tree.root) == 0.5
    assert memory_limit_bytes(tree.root) == 1_000_000


def test_v2_group_outside_the_namespace(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("proc/self/cgroup", "0::/../other")
    tree.write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert cpu_quota(tree.root) == 3


def test_v1_nested(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", v1_mount("cpu,cpuacct") + "\n" + v1_mount("memory"))
    tree.write("proc/self/cgroup", "5:memory:/batch/job\n4:cpu,cpuacct:/batch/job\n0::/")
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_quota_us", "-1")
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "150000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "50000")
    tree.write("sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "4096000")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1)
    assert cpu_quota(tree.root) == 3
    assert memory_limit_bytes(tree.root) == 4_096_000


def test_v1_container_sees_its_group_at_the_mount_and_the_host_above_only_in_the_statistics(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", v1_mount("cpu", "/docker/abc") + "\n" + v1_mount("memory", "/docker/abc"))
    tree.write("proc/self/cgroup", "2:cpu:/docker/abc\n1:memory:/docker/abc")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.write("sys/fs/cgroup/memory/memory.stat", "cache 0\nhierarchical_memory_limit 777216\nrss 1")
    assert cpu_quota(tree.root) == 2
    assert memory_limit_bytes(tree.root) == 777_216


def test_v1_without_limits(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", v1_mount("cpu") + "\n" + v1_mount("memory"))
    tree.write("proc/self/cgroup", "2:cpu:/\n1:memory:/")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1)
    assert cpu_quota(tree.root) is None
    assert memory_limit_bytes(tree.root) is None


@pytest.mark.parametrize(
    ("physical", "quota", "usable"), [(8, None, 8), (8, 16.0, 8), (8, 3.9, 3), (8, 1.0, 1), (8, 0.2, 1), (1, 4.0, 1)]
)
def test_usable_cores_round_down_to_at_least_one(physical: int, quota: float | None, usable: int) -> None:
    assert Cores(online=64, allowed=8, physical=physical, quota=quota).usable == usable


def test_affinity_limits_the_cores() -> None:
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everything)})
        assert machine.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, everything)


def test_memory_is_the_smaller_of_host_and_cgroup(tree: Tree) -> None:
    tree.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:        10 kB")
    assert machine.memory(tree.root).limit_bytes == 1_024_000
    assert Memory(total_bytes=100, cgroup_bytes=40).limit_bytes == 40
    assert Memory(total_bytes=100, cgroup_bytes=400).limit_bytes == 100


def test_huge_pages_and_model(tree: Tree) -> None:
    assert machine.huge_pages(tree.root) == "unknown"
    tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    tree.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\n\nmodel name\t: Another")
    assert machine.huge_pages(tree.root) == "madvise"
    assert machine.cpu_model(tree.root) == "A Processor"
    assert machine.cpu_model(tree.root / "nowhere")


def arm_core(part: str, implementer: str = "0x41") -> str:
    return f"processor\t: 0\nCPU implementer\t: {implementer}\nCPU architecture: 8\nCPU part\t: {part}\n"


def test_arm_cores_have_names(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "\n".join([arm_core("0xd40")] * 2))
    assert machine.cpu_model(tree.root) == "Neoverse V1"
    tree.write("proc/cpuinfo", "\n".join([arm_core("0xd05")] * 4 + [arm_core("0xd0b")] * 2))
    assert machine.cpu_model(tree.root) == "4 x Cortex-A55, 2 x Cortex-A76"
    tree.write("proc/cpuinfo", arm_core("0x999", "0x42"))
    assert machine.cpu_model(tree.root) == "ARM core 0x42/0x999"


def test_cpu_lists() -> None:
    assert parse_cpu_list("") == ()
    assert parse_cpu_list("0-2,7,9-10") == (0, 1, 2, 7, 9, 10)


def test_throttled_time(tree: Tree) -> None:
    assert throttled_s(tree.root) == 0
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("proc/self/cgroup", "0::/a/b")
    tree.write("sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nthrottled_usec 2500000")
    tree.write("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 9\nthrottled_usec 1000000")
    assert throttled_s(tree.root) == 2.5


def test_throttled_time_of_version_1(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", v1_mount("cpu,cpuacct"))
    tree.write("proc/self/cgroup", "3:cpu,cpuacct:/a")
    tree.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.stat", "nr_periods 5\nthrottled_time 1500000000")
    assert throttled_s(tree.root) == 1.5


def test_a_mac_counts_its_fast_cores() -> None:
    told = {
        "machdep.cpu.brand_string": "Apple M2", "hw.memsize": str(16 << 30), "hw.perflevel0.physicalcpu": "4",
        "hw.physicalcpu": "8",
    }  # fmt: skip
    assert mac(lambda name: told[name]) == Mac("Apple M2", 4, 16 << 30)
    told["hw.perflevel0.physicalcpu"] = ""  # an older macOS
    assert mac(lambda name: told[name]).fast_cores == 8
