"""Machines as data."""

from pathlib import Path

import pytest

from surefoot.plan.machines import UnknownMachineError, find_machine, known_machines

OURS = """
[[machine]]
name = "ours"
cores = 4
clock_ghz = 2.0
variant = "avx2"
operations = 64
channels = 2
transfers_ghz = 3.2
memory_gb = 32
source = "its label"
"""


@pytest.mark.parametrize("name", known_machines())
def test_every_known_machine_can_be_planned_for(name: str) -> None:
    entry, machine = known_machines()[name], find_machine(name)
    assert machine.rates.read_bytes_per_second < entry.channels * entry.transfers_ghz * 8e9
    assert entry.source
    assert "w8x2a2g32" in machine.rates.efficiency.linear


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OURS)
    assert find_machine(f"{file}:ours") == find_machine(f"{file}")
    assert find_machine(f"{file}").rates.int8_operations_per_second == 4 * 2e9 * 64


@pytest.mark.parametrize(("old", "new"), [("cores = 4\n", ""), ("avx2", "sse"), ("[[machine]]", "")])
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OURS.replace(old, new))
    with pytest.raises(UnknownMachineError):
        find_machine(f"{file}:ours")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownMachineError, match="epyc-7763"):
        find_machine("abacus")


def test_sockets_need_a_link(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OURS + "sockets = 2\n")
    with pytest.raises(UnknownMachineError, match="link_gb"):
        find_machine(f"{file}:ours")
    file.write_text(OURS + "sockets = 2\nlink_gb = 40\nline_ns = 200\n")
    both, alone = find_machine(f"{file}:ours"), find_machine(f"{file}:ours").one_node()
    assert both.rates.link.num_nodes == 2
    assert both.rates.link.bytes_per_second < 40e9
    assert 2 * alone.memory_bytes == both.memory_bytes
    assert 2 * alone.rates.read_bytes_per_second == both.rates.read_bytes_per_second
    assert alone.rates.link.num_nodes == 1
