"""Machines that a plan can be made for: this one, or one of machines.toml or of a file like it."""

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from surefoot import machine
from surefoot.ops import Backend
from surefoot.ops.backend import NEEDS, choose_variant
from surefoot.ops.node_probe import node_bandwidths
from surefoot.plan.subject import SizedModel
from surefoot.speed.measure_rates import measure_rates
from surefoot.speed.rates import MachineRates, NodeLink
from surefoot.speed.shipped_rates import OPERATIONS, nominal_rates, shipped_efficiency
from surefoot.weights.gguf import Host

THIS = "this"
READ_SHARE = 0.8  # of the nominal bandwidth that threads read: assumed, not measured
NODE_BYTES = 256 << 20  # that are read of each node, to measure it
LINE_S = 2e-7  # for a cache line from another socket, where no machine is named: as published of two
LINK_SHARE = 0.6  # of the nominal bandwidth between sockets: as published of one machine (docs/design/nodes.md)


class UnknownMachineError(ValueError):
    """There is no machine with this name."""


@dataclass(frozen=True)
class SizedMachine:
    """What a plan needs to know of a machine."""

    name: str
    memory_bytes: int  # that the process may use
    rates: MachineRates
    source: str  # of the figures
    watts: float = 0.0  # that it takes while it computes; 0: not known
    price_per_hour: float = 0.0  # 0: not known

    @property
    def host(self) -> Host:
        return Host(self.rates.variant, self.memory_bytes)

    def one_node(self) -> "SizedMachine":
        """One of its NUMA nodes, for an engine that has it to itself."""
        count = self.rates.link.num_nodes
        return replace(self, memory_bytes=self.memory_bytes // count, rates=self.rates.of_one_node())

    def faster(self, operations: float = 1.0, bandwidth: float = 1.0) -> "SizedMachine":
        """With so many times the arithmetic and the bandwidth."""
        rates = replace(
            self.rates,
            int8_operations_per_second=operations * self.rates.int8_operations_per_second,
            read_bytes_per_second=bandwidth * self.rates.read_bytes_per_second,
        )
        return replace(self, rates=rates)

    def with_variant(self, variant: str) -> "SizedMachine":
        """With as many cores of the same clock that run another variant, whose kernels are those of the shipped
        curves."""
        ratio = OPERATIONS[variant] / OPERATIONS[self.rates.variant]
        operations = ratio * self.rates.int8_operations_per_second
        rates = replace(
            self.rates,
            variant=variant,
            int8_operations_per_second=operations,
            efficiency=shipped_efficiency(variant),
        )
        return replace(self, rates=rates)


@dataclass(frozen=True)
class MachineEntry:
    """A machine of machines.toml. Cores, channels, memory and watts are those of all its sockets together."""

    name: str
    cores: int
    clock_ghz: float  # that all cores sustain
    variant: str
    operations: int  # int8 multiplications and additions of a core in a cycle
    channels: float  # of memory; a part of a machine has a part of its channels
    transfers_ghz: float  # of a channel, 8 bytes each
    memory_gb: int
    source: str
    watts: float = 0.0  # thermal design power of the processor; 0: not known
    price_per_hour: float = 0.0  # in any currency; 0: not known
    sockets: int = 1
    link_gb: float = 0.0  # GB/s that a socket can get from the others: nominal, one direction
    line_ns: float = 0.0  # for a cache line from the caches of another socket

    def __post_init__(self) -> None:
        if self.sockets > 1 and not (self.link_gb and self.line_ns):
            raise UnknownMachineError(f"{self.name}: of several sockets, give link_gb and line_ns too")
        if self.variant not in NEEDS:
            raise UnknownMachineError(
                f"{self.name}: no variant is named {self.variant!r}: take one of {', '.join(NEEDS)}"
            )

    def planned(self) -> SizedMachine:
        nominal = self.channels * self.transfers_ghz * 8e9
        rates = MachineRates(
            self.variant,
            self.cores,
            READ_SHARE * nominal,
            self.cores * self.clock_ghz * 1e9 * self.operations,
            shipped_efficiency(self.variant),
            self._link(),
        )
        return SizedMachine(self.name, int(self.memory_gb * 1e9), rates, self.source, self.watts, self.price_per_hour)

    def _link(self) -> NodeLink:
        if self.sockets == 1:
            return NodeLink()
        return NodeLink(self.sockets, LINK_SHARE * self.link_gb * 1e9, self.line_ns * 1e-9)


def known_machines(path: Path | None = None) -> dict[str, MachineEntry]:
    """path: a file like machines.toml instead of it."""
    text = files("surefoot.plan").joinpath("machines.toml").read_text() if path is None else path.read_text()
    try:
        entries = [MachineEntry(**entry) for entry in tomllib.loads(text)["machine"]]
    except (TypeError, KeyError, tomllib.TOMLDecodeError) as wrong:
        raise UnknownMachineError(f"{path}: not a list of [[machine]] with all fields: {wrong}") from None
    return {entry.name: entry for entry in entries}


def find_machine(name: str) -> SizedMachine:
    """name: of machines.toml, or FILE.toml:NAME (only FILE.toml: its first machine)."""
    file, dot_toml, rest = name.partition(".toml")
    known = known_machines(Path(f"{file}.toml") if dot_toml else None)
    wanted = (rest.removeprefix(":") or next(iter(known))) if dot_toml else name
    if wanted not in known:
        raise UnknownMachineError(f"there is no machine {wanted!r}: take {THIS}, or one of {', '.join(known)}")
    return known[wanted].planned()


def measure_machine(model: SizedModel, variant: str | None, threads: int | None, seconds: float = 12.0) -> SizedMachine:
    """This machine, with the kernels that the model needs."""
    backend = Backend(variant, threads)
    try:
        rates = measure_rates(backend, model.linear_shapes, model.attention_shape, seconds)
    finally:
        backend.close()
    link, _ = measure_nodes(backend.variant, backend.threads)  # what `call_s` holds already has no time of its own
    rates = replace(rates, link=link)
    return SizedMachine(THIS, machine.memory().limit_bytes, rates, f"measured on {machine.cpu_model()}")


def glance_at_machine(variant: str | None, threads: int | None) -> SizedMachine:
    """This machine, by the bandwidth of its nodes, which takes a moment to measure, and nominal arithmetic."""
    chosen, count = choose_variant(variant), threads or machine.usable_cores()
    rates, (link, read_bytes_per_second) = nominal_rates(chosen, count), measure_nodes(chosen, count)
    if link.num_nodes > 1:
        link = replace(link, line_s=LINE_S)
        rates = replace(rates, link=link, read_bytes_per_second=read_bytes_per_second)
    return SizedMachine(THIS, machine.memory().limit_bytes, rates, "bandwidth measured, arithmetic nominal")


def measure_nodes(variant: str, threads: int) -> tuple[NodeLink, float]:
    """The slowest link between NUMA nodes that these threads belong to, and the bandwidth of all nodes together, each
    read by its own threads; 0 where threads belong to no node."""
    num_nodes = len(machine.choose_placement(threads).shares)
    if num_nodes < 2:
        return NodeLink(), 0.0
    reads = node_bandwidths(variant, threads, machine.nodes(), machine.physical_cores(), NODE_BYTES)
    speeds = {(read.cores_node, read.memory_node): read.read_bytes_per_second for read in reads}
    across = min(speed for (cores, memory), speed in speeds.items() if cores != memory)
    return NodeLink(num_nodes, across), sum(speed for (cores, memory), speed in speeds.items() if cores == memory)
