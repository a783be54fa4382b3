"""Caches of a model's layers in memory: whose huge pages end when."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from surefoot.ops.kv import HUGE_PAGE
from surefoot.runner.kv_store import _gaps


@given(st.lists(st.integers(1, 1 << 31), min_size=2, max_size=96))
def test_no_two_layers_come_to_the_end_of_a_page_together(sizes: list[int]) -> None:
    gaps, end, places = _gaps(sizes), 0, []
    for gap, nbytes in zip(gaps, sizes, strict=True):
        places.append((end + gap) % HUGE_PAGE)
        end += gap + -(-nbytes // 64) * 64
    assert min(right - left for left, right in pairwise(sorted(places))) >= HUGE_PAGE // len(sizes) - 64
    assert sum(gaps) <= len(sizes) * HUGE_PAGE
