"""Cores are shared by load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.front.pool import share_cores


@pytest.mark.parametrize(
    ("num_cores", "num_busy", "threads"),
    [
        (8, {"a": 0, "b": 0}, {"a": 8, "b": 8}),  # whichever is asked first has them all
        (8, {"a": 3, "b": 0}, {"a": 8, "b": 1}),
        (8, {"a": 1, "b": 1}, {"a": 4, "b": 4}),
        (8, {"a": 3, "b": 1}, {"a": 6, "b": 2}),
        (2, {"a": 9, "b": 1}, {"a": 1, "b": 1}),
        (2, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_split(num_cores: int, num_busy: dict[str, int], threads: dict[str, int]) -> None:
    assert share_cores(num_cores, num_busy) == threads


@given(st.integers(1, 64), st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 50), min_size=1))
def test_busy_models_use_all_cores_and_no_more(num_cores: int, num_busy: dict[str, int]) -> None:
    threads = share_cores(num_cores, num_busy)
    busy = [threads[name] for name in num_busy if num_busy[name]]
    assert all(count >= 1 for count in threads.values())
    if busy:
        assert sum(busy) == max(num_cores, len(busy))
