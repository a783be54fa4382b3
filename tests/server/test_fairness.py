"""One user with many requests against one with few."""

from collections.abc import Callable
from pathlib import Path

from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.workloads import Task
from surefoot.bench.serve.fairness import Others, measure_fairness
from tests.server.access.sharing import quick_key
from tests.smollm2 import find_file

NUM_ROWS, NUM_STREAMS = 8, 20


def test_who_asks_little_waits_for_no_row(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Every row is another's, and stays so: the first token comes before any of theirs has ended. How many times as
    long as on an idle server it takes is for a quiet machine to tell: `surefoot bench serve`."""
    file, port = tmp_path / "keys.toml", free_port()
    few, many = quick_key(file, "few", admin=True), quick_key(file, "many")  # steps are read from /metrics
    words = ("--keys", str(file), "--max-context", "2048", "--max-running", str(NUM_ROWS))
    with running(own_launch(find_file(), port, *words), port) as server:
        one, other = server.endpoint(few), server.endpoint(many)
        probes = [Task((number, *range(500, 530)), 4) for number in range(1000, 1006)]
        crowd = iter([Task((number, *range(600, 630)), 1500) for number in range(2000, 2000 + 2 * NUM_STREAMS)])
        found = measure_fairness(one, probes[:3], probes[3:], Others(other, crowd, NUM_STREAMS, num_begun=NUM_ROWS))
    record_property("single_user_ttft_ratio", found.ratio)
    print(found, f"ratio {found.ratio:.2f}")
    assert len(list(crowd)) == NUM_STREAMS, "one of theirs has ended"
    assert min(found.busy_s) > 0
