"""Files of /proc and /sys as Linux lays them out, for machines that we do not have."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

GIB_KIB = 1 << 20


@dataclass(frozen=True)
class RecordedCore:
    socket: int
    node: int
    cpus: tuple[int, ...]
    is_fast: bool = True


def server(sockets: int, cores: int, threads: int = 1, nodes: int = 1) -> list[RecordedCore]:
    """Cores and nodes of each socket. Linux numbers the first hardware threads of all cores before any second one."""
    total = sockets * cores
    return [
        RecordedCore(core // cores, core * nodes // cores, tuple(range(core, total * threads, total)))
        for core in range(total)
    ]


def desktop(fast: int, slow: int) -> list[RecordedCore]:
    """Fast cores have two hardware threads, numbered side by side; slow ones have one."""
    fast_cores = [RecordedCore(0, 0, (2 * core, 2 * core + 1)) for core in range(fast)]
    return fast_cores + [RecordedCore(0, 0, (2 * fast + core,), is_fast=False) for core in range(slow)]


def record(root: Path, cores: list[RecordedCore], speeds_in: str = "", memory_nodes: str | None = None) -> None:
    """Write the machine's files below `root`.

    speeds_in: where the kernel says which cores are fast: cpu_core, cpu_capacity or cpuinfo_max_freq. memory_nodes:
    the nodes that the cpuset lets this process take memory of.
    """
    system, files = "sys/devices/system", dict[str, str]()
    for core in cores:
        for cpu in core.cpus:
            folder = f"{system}/cpu/cpu{cpu}"
            files[f"{folder}/topology/physical_package_id"] = str(core.socket)
            files[f"{folder}/topology/core_id"] = str(core.cpus[0])
            files[f"{folder}/topology/thread_siblings_list"] = ",".join(map(str, core.cpus))
            if speeds_in == "cpu_capacity":
                files[f"{folder}/cpu_capacity"] = "1024" if core.is_fast else "446"
            else:
                files[f"{folder}/cpu_capacity"] = "1024"
            if speeds_in == "cpuinfo_max_freq":  # favoured cores run a little faster
                rate = 5_100_000 + 100_000 * (core.cpus[0] == 0) if core.is_fast else 3_300_000
                files[f"{folder}/cpufreq/cpuinfo_max_freq"] = str(rate)
    if speeds_in == "cpu_core":
        for name, fast in (("cpu_core", True), ("cpu_atom", False)):
            files[f"sys/devices/{name}/cpus"] = _list(core for core in cores if core.is_fast == fast)
    sockets = {core.node: core.socket for core in cores}
    for node, socket in sockets.items():
        folder = f"{system}/node/node{node}"
        files[f"{folder}/cpulist"] = _list(core for core in cores if core.node == node)
        files[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {128 * GIB_KIB} kB\nNode {node} MemFree:  9 kB"
        to_others = ((10 if other == node else 12 if sockets[other] == socket else 32) for other in sockets)
        files[f"{folder}/distance"] = " ".join(map(str, to_others))
    files["proc/self/status"] = f"Name:\tpython\nMems_allowed_list:\t{memory_nodes or f'0-{max(sockets)}'}"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


def _list(cores: Iterable[RecordedCore]) -> str:
    return ",".join(map(str, sorted(cpu for core in cores for cpu in core.cpus)))
