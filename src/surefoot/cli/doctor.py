"""`surefoot doctor`: what this machine offers, what of it will be used, and why."""

import json
import os
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from surefoot import __version__, machine
from surefoot.ops import Backend, PeakKind, VariantError, best_peak, best_read_bandwidth
from surefoot.ops.backend import FEATURES, NEEDS, choose_variant, cpu_features, missing_features
from surefoot.ops.node_probe import NodeBandwidth, node_bandwidths, placing_error
from surefoot.ops.probe import bandwidth_buffer

MOST_BUFFER_BYTES = 1 << 30  # beyond most last-level caches
GIB = 1 << 30
FILE_GB = (1, 5, 18)  # a model of 1.5, of 8 and of 30 billion weights in 4 bits


@dataclass(frozen=True)
class MachineSpeeds:
    """What all usable cores reach together."""

    threads: int
    load: float  # one-minute load average before measuring
    buffer_bytes: int  # read to measure bandwidth
    read_bytes_per_second: float
    int8_operations_per_second: float
    float32_operations_per_second: float
    bfloat16_operations_per_second: float | None  # None without matrix instructions
    nodes: tuple[NodeBandwidth, ...]  # between NUMA nodes, where there are several


@dataclass(frozen=True)
class Report:
    """What `surefoot doctor` shows."""

    cpu: str
    features: dict[str, bool]  # whether each instruction set can be used
    variant: str
    reason: str  # why this variant was chosen
    cores: machine.Cores
    physical_cores: tuple[machine.PhysicalCore, ...]
    memory: machine.Memory
    nodes: tuple[machine.NumaNode, ...]
    placement: machine.Placement  # of threads on nodes
    placing_error: str  # why weights cannot be placed with them; empty: they can, or there is one node
    huge_pages: str  # the system's setting
    measured: MachineSpeeds | None  # None if measuring was not asked for
    advice: tuple[str, ...]  # what the user could change

    def as_json(self) -> dict[str, Any]:
        facts = {"version": __version__, **asdict(self)}
        facts["cores"]["usable"] = self.cores.usable
        facts["memory"]["limit_bytes"] = self.memory.limit_bytes
        return facts


def _reason(chosen: str) -> str:
    """Why this variant was chosen: it was asked for, or the machine lacks what every better variant needs."""
    if os.environ.get("SUREFOOT_VARIANT"):
        return "SUREFOOT_VARIANT asks for it"
    better = list(NEEDS)[: list(NEEDS).index(chosen)]
    lacking = [f"{variant} needs {', '.join(missing_features(variant))}" for variant in better]
    return "; ".join(lacking) or "the best there is, and this machine has all it needs"


def _advice(
    cores: machine.Cores, huge_pages: str, features: frozenset[str], load: float, placing_error: str = ""
) -> tuple[str, ...]:
    """What the user could change, and how."""
    advice = []
    if placing_error:
        advice.append(
            f"Weights cannot be placed on NUMA nodes ({placing_error}): half of the reads or more may go to other "
            "nodes. The seccomp profile must allow mbind; in a container, --cap-add SYS_NICE does that."
        )
    if "amx_int8" in features and "amx_permitted" not in features:
        advice.append(
            "The kernel refuses AMX to this process: look at its seccomp profile (arch_prctl must be allowed)."
        )
    if cores.quota is not None and cores.quota != int(cores.quota):
        advice.append(
            f"The CPU quota of {cores.quota:g} cores is not a whole number: {cores.usable} will be used. "
            f"Grant {int(cores.quota) + 1} to use the rest."
        )
    if huge_pages == "never":
        advice.append(
            "Huge pages are off, which slows reading: "
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        )
    if load > 0.5:
        advice.append(f"The machine was busy (load {load:.1f}): run again when it is idle for its true speed.")
    return tuple(advice)


def _measure(variant: str, cores: machine.Cores, memory: machine.Memory, load: float) -> MachineSpeeds:
    backend = Backend(variant, cores.usable)
    buffer_bytes = min(MOST_BUFFER_BYTES, memory.limit_bytes // 8)
    buffer = bandwidth_buffer(backend, buffer_bytes)
    bf16 = best_peak(backend, PeakKind.BF16_MATRIX) if variant == "amx" else None
    return MachineSpeeds(
        threads=cores.usable,
        load=load,
        buffer_bytes=buffer_bytes,
        read_bytes_per_second=best_read_bandwidth(backend, buffer),
        int8_operations_per_second=best_peak(backend, PeakKind.INT8),
        float32_operations_per_second=best_peak(backend, PeakKind.FLOAT),
        bfloat16_operations_per_second=bf16,
        nodes=node_bandwidths(variant, cores.usable, machine.nodes(), machine.physical_cores(), buffer_bytes),
    )


def examine(measure: bool) -> Report:
    load = os.getloadavg()[0]
    features, variant = cpu_features(), choose_variant()
    cores, memory, huge_pages = machine.cores(), machine.memory(), machine.huge_pages()
    placement = machine.choose_placement(cores.usable)
    refused = placing_error(placement) if placement.shares else ""
    return Report(
        cpu=machine.cpu_model(),
        features={name: name in features for name in FEATURES},
        variant=variant,
        reason=_reason(variant),
        cores=cores,
        physical_cores=machine.physical_cores(),
        memory=memory,
        nodes=machine.nodes(),
        placement=placement,
        placing_error=refused,
        huge_pages=huge_pages,
        measured=_measure(variant, cores, memory, load) if measure else None,
        advice=_advice(cores, huge_pages, features, load if measure else 0.0, refused),
    )


def _cores_line(cores: machine.Cores) -> str:
    quota = "no cgroup quota" if cores.quota is None else f"cgroup quota {cores.quota:g}"
    return (
        f"[bold]{cores.usable}[/bold] usable ({cores.online} processors, {cores.allowed} allowed, "
        f"{cores.physical} physical, {quota})"
    )


def _physical_line(cores: tuple[machine.PhysicalCore, ...]) -> str:
    sockets, threads = {core.socket for core in cores}, sorted({len(core.cpus) for core in cores})
    slow = sum(not core.is_fast for core in cores)
    kinds = f" ({len(cores) - slow} fast, {slow} slow)" if slow else ""
    where = f"{len(sockets)} socket{'s' * (len(sockets) > 1)}"
    return f"{len(cores)}{kinds} on {where}, {' or '.join(map(str, threads))} processor{'s' * (threads[-1] > 1)} each"


def _memory_line(memory: machine.Memory) -> str:
    limit = "no cgroup limit" if memory.cgroup_bytes is None else f"cgroup limit {memory.cgroup_bytes / GIB:.1f} GiB"
    return (
        f"[bold]{memory.limit_bytes / GIB:.1f} GiB[/bold] ({memory.total_bytes / GIB:.1f} GiB in the machine, {limit})"
    )


def _measured_rows(measured: MachineSpeeds) -> list[tuple[str, str]]:
    rows = [
        ("Read bandwidth", f"[bold]{measured.read_bytes_per_second / 1e9:.1f} GB/s[/bold]"),
        ("int8 peak", f"[bold]{measured.int8_operations_per_second / 1e12:.2f} TOPS[/bold]"),
        ("float32 peak", f"{measured.float32_operations_per_second / 1e12:.2f} TFLOPS"),
    ]
    if measured.bfloat16_operations_per_second is not None:
        rows.append(("bfloat16 peak", f"{measured.bfloat16_operations_per_second / 1e12:.2f} TFLOPS"))
    threads = "1 thread" if measured.threads == 1 else f"{measured.threads} threads"
    rows = [(name, f"{value} with {threads}") for name, value in rows]
    if measured.nodes:
        by_node = groupby(measured.nodes, key=lambda read: read.cores_node)
        rows.append(("Node reads node", "\n".join(_bandwidth_line(list(reads)) for _, reads in by_node)))
    return [*rows, ("Limit of decoding", _decode_limit(measured.read_bytes_per_second))]


def _decode_limit(bandwidth: float) -> str:
    """Of one user without speculation: a token takes one read of the file."""
    rates = " · ".join(f"{bandwidth / (size * 1e9):.2g} tokens/s for {size} GB" for size in FILE_GB)
    return f"{rates} (a file's bytes; of a mixture of experts, those that a token reads)"


def _runs(cpus: tuple[int, ...]) -> str:
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def _node_line(node: machine.NumaNode, cores: tuple[machine.PhysicalCore, ...]) -> str:
    allowed = "" if node.memory_allowed else ", not allowed"
    return (
        f"node {node.number}: processors {_runs(node.cpus)} ({len(node.cores(cores))} cores allowed); "
        f"{node.memory_bytes / GIB:.1f} GiB{allowed}; distances {', '.join(map(str, node.distances)) or 'unknown'}"
    )


def _threads_line(placement: machine.Placement, placing_error: str) -> str:
    if not placement.shares:
        return f"not bound to nodes: {placement.reason}"
    shares = ", ".join(f"{share.threads} to node {share.node}" for share in placement.shares)
    memory = "anywhere" if placing_error else "on the node whose threads read them"
    return f"bound: {shares}; weights lie {memory}"


def _bandwidth_line(reads: list[NodeBandwidth]) -> str:
    """What the cores of one node read."""
    speeds = ", ".join(f"{read.read_bytes_per_second / 1e9:.1f} GB/s from node {read.memory_node}" for read in reads)
    return f"node {reads[0].cores_node} ({reads[0].threads} threads): {speeds}"


def _rows(report: Report) -> list[tuple[str, str]]:
    sets = [name if there else f"[dim]no {name}[/dim]" for name, there in report.features.items()]
    nodes = [_node_line(node, report.physical_cores) for node in report.nodes]
    return [
        ("Processor", report.cpu),
        ("Instruction sets", " · ".join(sets)),
        ("Variant", f"[bold]{report.variant}[/bold] ({report.reason})"),
        ("Cores", _cores_line(report.cores)),
        *([("Physical cores", _physical_line(report.physical_cores))] if report.physical_cores else []),
        ("Memory", _memory_line(report.memory)),
        ("NUMA nodes", "\n".join(nodes) or "not told by the kernel"),
        ("Threads", _threads_line(report.placement, report.placing_error)),
        ("Huge pages", report.huge_pages),
        *(_measured_rows(report.measured) if report.measured else []),
    ]


def _print_table(report: Report) -> None:
    console = Console()
    table = Table(title=f"surefoot {__version__} on this machine", show_header=False, title_justify="left")
    for name, value in _rows(report):
        table.add_row(name, value)
    console.print(table)
    for line in report.advice:
        console.print(f"[yellow]•[/yellow] {line}")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    measure: Annotated[
        bool, typer.Option(help="Measure memory bandwidth and peak arithmetic (about two seconds).")
    ] = True,
) -> None:
    """Show what this machine offers and what surefoot will use of it.

    Instruction sets are those that the operating system allows. Cores and memory are what affinity and cgroups grant to
    this process. Set SUREFOOT_VARIANT to force a variant.
    """
    try:
        report = examine(measure)
    except VariantError as error:
        typer.echo(f"surefoot: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        _print_table(report)
