"""Three models where two fit, under a limit that the kernel keeps: real processes, tiny models."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from surefoot.front.serve import FRONT_BYTES, MEMORY_FRACTION
from tests.front.many import NAMES, ManyModels, ask, room_bytes
from tests.machine.memory_group import MemoryGroup, NoMemoryGroup, memory_group
from tests.waiting import wait_for

PATTERN = "abaacabc"
MOST_LOADS = 4


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """A cgroup in which two of the models fit. The front leaves a part of its memory to the page cache."""
    try:
        with memory_group(int(room_bytes(2) / MEMORY_FRACTION)) as made:
            yield made
    except NoMemoryGroup as error:
        pytest.skip(str(error))


@pytest.fixture
def in_group(tmp_path: Path, group: MemoryGroup) -> Iterator[ManyModels]:
    """A server that is told of no limit: it has to find the cgroup's."""
    made = ManyModels(tmp_path, 2, group=group)
    yield made
    made.stop()


@pytest.fixture
def with_option(tmp_path: Path) -> Iterator[ManyModels]:
    made = ManyModels(tmp_path, 2)
    yield made
    made.stop()


class MemoryWatch:
    """The most memory that the server used while the block ran, looked at again and again."""

    def __init__(self, server: ManyModels) -> None:
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most_bytes = 0
        self.num_looks = 0

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ended.is_set():
            self.most_bytes = max(self.most_bytes, self._server.used_bytes())
            self.num_looks += 1

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def ask_side_by_side(server: ManyModels) -> set[str]:
    """Several clients: each request is sent once the one before is answered or waits. Returns the answers."""
    client = server.client
    answers: list[Future[str]] = []

    def num_waiting() -> int:
        return sum(card["num_waiting"] for card in server.cards())

    with ThreadPoolExecutor(len(PATTERN)) as pool:
        for model in PATTERN:
            before = num_waiting()
            answers.append(answer := pool.submit(ask, client, model))
            wait_for(
                lambda answer=answer, before=before: (
                    answer.done() or num_waiting() > before or server.states()[NAMES[0]] == "loading"
                )
            )
        return {answer.result() for answer in answers}


def ask_one_by_one(server: ManyModels) -> set[str]:
    """One client, which waits for each answer."""
    return {ask(server.client, model) for model in PATTERN}


def test_limit_of_a_cgroup_is_found(in_group: ManyModels, group: MemoryGroup) -> None:
    assert group.limit_bytes is not None
    for_models = int(group.limit_bytes * MEMORY_FRACTION) - FRONT_BYTES
    assert f"of {for_models / (1 << 20):.0f} MiB: not all at once" in in_group.log


# One client's loads depend on how soon it asks again: a machine that stands still for seconds would fail the test. In
# simulated time it always runs (test_residency.py).
@pytest.mark.parametrize("ask_all", [ask_side_by_side, pytest.param(ask_one_by_one, marks=pytest.mark.nightly)])
def test_pattern_within_the_limit_of_a_cgroup(
    in_group: ManyModels, group: MemoryGroup, ask_all: Callable[[ManyModels], set[str]]
) -> None:
    """The kernel has nothing to enforce."""
    check_pattern(in_group, ask_all)
    assert group.limit_bytes is not None
    assert 0 < group.peak_bytes <= group.limit_bytes
    assert group.num_killed == 0
    assert in_group.metric("surefoot:model_crashes_total") == 0


def test_pattern_within_the_limit_of_an_option(with_option: ManyModels) -> None:
    check_pattern(with_option, ask_side_by_side)


def check_pattern(server: ManyModels, ask_all: Callable[[ManyModels], set[str]]) -> None:
    with MemoryWatch(server) as memory:
        assert len(ask_all(server)) == 1
    assert server.num_loads() <= MOST_LOADS
    assert server.wait_for(r"loaded\s+\w in [\d.]+ s \([\d.]+ s of processor time\), swap [\d.]+ s: ")
    bound = server.wait_for(r"its answer begins within (\d+) s")
    assert 0 < server.metric("surefoot:model_longest_wait_seconds") <= 3 * float(bound[1])
    assert memory.num_looks > 10
    assert memory.most_bytes <= server.limit_bytes
    assert sum(state != "unloaded" for state in server.states().values()) <= 2
