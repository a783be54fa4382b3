"""One user with many requests against one with few."""

from collections.abc import Callable

from tests.model.test_smollm2 import find_file
from tests.server.fairness import run


def test_who_asks_little_waits_for_no_row(record_property: Callable[[str, object], None]) -> None:
    """Every row is another's, and stays so: the first token comes before any of theirs has ended. How many times as
    long as on an idle server it takes is for a quiet machine to tell: python -m tests.server.fairness."""
    found = run(find_file(), num_many=20, num_few=3, max_running=8)
    record_property("single_user_ttft_ratio", found.ratio)
    print(found, f"ratio {found.ratio:.2f}")
    assert found.num_ended == 0
    assert found.busy_p95_s > 0
