"""Which node the bytes of weights are asked for, and where the system puts them.

A machine of one node stands for one of several: each share's processors are this machine's, and requests are noted
instead of made. tests/packaging/test_nodes.py has the nodes, emulated."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from surefoot.machine import NodeShare, Placement
from surefoot.ops import (
    ActivationForm,
    Backend,
    WeightFormat,
    empty_kv_cache,
    empty_packed,
    linear,
    linear_experts,
    pack,
)
from surefoot.ops.arrays import Arena
from surefoot.ops.pages import Pages
from surefoot.weights import GgufFile
from surefoot.weights.packed_cache import PackedCache, packed_cache
from tests.ops.linear import aligned, random_rows, random_weights, same_bits
from tests.oracle import linear as oracle
from tests.weights.gguf_files import write

FORMAT = WeightFormat(8, 2, 32)
Asked = list[tuple[int, int, list[int]]]


def forced(*threads: int) -> Placement:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Placement(tuple(NodeShare(node, cpus, count) for node, count in enumerate(threads)))


def watched(monkeypatch: pytest.MonkeyPatch, *threads: int) -> tuple[Backend, Asked]:
    asked: Asked = []

    def note(self: Backend, address: int, nbytes: int, nodes: Sequence[int]) -> int:
        asked.append((address, nbytes, list(nodes)))
        return 0

    monkeypatch.setattr(Backend, "_prefer_nodes", note)
    return Backend(threads=sum(threads), placement=forced(*threads)), asked


@pytest.mark.parametrize("threads", [(1, 1), (3, 1), (2, 1, 2)])
@pytest.mark.parametrize("rows", [1, 3, 19, 300])
def test_products_have_the_same_bits_on_any_nodes(variant: str, threads: tuple[int, ...], rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights = random_weights(rng, WeightFormat(4, 2, 32), 300, 640)
    x = aligned(random_rows(rng, rows, 640, ActivationForm(2)))
    backend = Backend(variant, sum(threads), forced(*threads))
    packed, want = pack(backend, weights), oracle.linear(x, weights)
    for num_threads in range(backend.threads, 0, -1):
        backend.use_threads(num_threads)
        assert same_bits(linear(backend, x, packed), want)


@pytest.mark.parametrize("threads", [(1, 1), (2, 1, 2)])
def test_experts_have_the_same_bits_on_any_nodes(variant: str, threads: tuple[int, ...]) -> None:
    rng, one = np.random.default_rng(1), Backend(variant, 1)
    experts = [pack(one, random_weights(rng, FORMAT, 100, 96)) for _ in range(5)]
    x = aligned(random_rows(rng, 90, 96, ActivationForm(2)))
    starts = np.array([0, 1, 1, 8, 88, 90])
    several = Backend(variant, sum(threads), forced(*threads))
    assert same_bits(linear_experts(several, x, experts, starts), linear_experts(one, x, experts, starts))


def test_each_node_gets_the_rows_that_its_threads_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, asked = watched(monkeypatch, 3, 1)
    packed = empty_packed(backend, FORMAT, 1024, 256, False)
    (first, length, nodes), (second, rest, others) = asked
    panel = (rest // 8) if not rest % 8 else 0  # of 32 panels the second node has a quarter
    assert first == packed.data.ctypes.data
    assert (first + length, length + rest) == (second, packed.nbytes)
    assert (nodes, others) == ([0], [1])
    assert length - 24 * panel == 256 + 4 * 1024  # the header and the rows' scales lie before the first panel


def test_a_matrix_of_few_rows_has_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, asked = watched(monkeypatch, 1, 1)
    packed = empty_packed(backend, FORMAT, 30, 256, False)
    assert asked == [(packed.data.ctypes.data, packed.nbytes, [0])]


def test_matrices_are_placed_wherever_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, experts, the packed cache."""
    backend, asked = watched(monkeypatch, 1, 1)
    model = write(tmp_path / "model.gguf")
    loads: list[dict[int, int]] = []
    for _ in range(2):
        asked.clear()
        with packed_cache(PackedCache(tmp_path / "cache"), model, GgufFile(model), "w8", backend=backend) as cached:
            packed = [*cached.fused(backend, ["a.weight"]), *cached.fused(backend, ["b.weight", "c.weight"])]
            packed += [matrix for run in cached.fused_experts(backend, ["experts.weight"]) for matrix in run]
        addresses = {address for address, _, _ in asked}
        assert {matrix.data.ctypes.data for matrix in packed} <= addresses
        loads.append({matrix.data.ctypes.data: matrix.nbytes for matrix in packed})
        asked_bytes = sum(nbytes for _, nbytes, _ in asked)
        assert asked_bytes == sum(matrix.nbytes for matrix in packed)
    assert loads[0] != loads[1]


def test_too_many_requests_become_one_kind() -> None:
    asked: Asked = []

    def note(address: int, nbytes: int, nodes: Sequence[int]) -> int:
        asked.append((address, nbytes, list(nodes)))
        return 0

    pages = Pages(forced(1, 1), note, max_requests=4)
    for address in (0, 1000, 2000, 3000):
        pages.split(address, [400, 1000])
    assert [nodes for _, _, nodes in asked] == [[0], [1], [0], [1], [0, 1], [0, 1]]
    assert asked[-1][:2] == (3000, 1000)


def test_keys_and_values_are_spread_over_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, asked = watched(monkeypatch, 1, 1)
    cache = empty_kv_cache(backend, 4, 64, 2, 64, arena=Arena(1 << 22))
    assert asked == [(cache.data.ctypes.data, cache.data.nbytes, [0, 1])]


def test_one_node_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = watched(monkeypatch, 1, 1)
    backend = Backend(threads=2, placement=Placement())
    empty_packed(backend, FORMAT, 64, 256, False)
    empty_kv_cache(backend, 4, 64, 2, 64, arena=Arena(1 << 22))
    assert not asked
    assert backend.node_ends(64, 1 << 20) == []


def test_a_placement_of_other_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="3 threads, but there are 2"):
        Backend(threads=2, placement=forced(2, 1))


def test_pool_threads_run_on_their_nodes_processors_and_the_caller_where_it_did() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("this process may use one processor")
    first, second = sorted(allowed)[:2]
    before = set(os.listdir("/proc/self/task"))
    shares = (NodeShare(0, (first,), 2), NodeShare(1, (second,), 2))
    backend = Backend(threads=4, placement=Placement(shares))
    bound = [os.sched_getaffinity(int(task)) for task in set(os.listdir("/proc/self/task")) - before]
    backend.close()
    assert sorted(map(sorted, bound)) == [[first], [second], [second]]
    assert os.sched_getaffinity(0) == allowed


def test_the_system_notes_the_request() -> None:
    """As far as one node can show it: in the policy of the pages' mapping."""
    maps = Path("/proc/self/numa_maps")
    if not maps.exists():
        pytest.skip("the kernel was built without NUMA nodes")
    backend = Backend(threads=2, placement=forced(1, 1))
    memory = mmap.mmap(-1, 1 << 22, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = 5 * mmap.PAGESIZE + 100  # nearer to the fifth page
    backend.pages.split(address, [end, end])
    if backend.pages.error in (1, 38):
        pytest.skip(f"the system refuses mbind: {os.strerror(backend.pages.error)}")
    memory[0] = 1
    policies = {line.split()[0]: line.split()[1] for line in maps.read_text().splitlines()}
    assert policies[f"{address:x}"].startswith("prefer")
    after = policies.get(f"{address + 5 * mmap.PAGESIZE:x}", "default")
    assert after == "default"
