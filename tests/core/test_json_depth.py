"""The depth of JSON, compared with a parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core.json_bounds import nests_deeper

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"', max_size=2), inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.integers(0, 8))
def test_depth_equals_the_parsers(value: Any, max_levels: int) -> None:
    assert nests_deeper(json.dumps(value).encode(), max_levels) == (depth_of(value) > max_levels)


@pytest.mark.parametrize(
    ("text", "is_deeper"), [("[" * 4, True), ("[" * 3, False), ("]" * 9, False), ("][[[[]]]]", True)]
)
def test_unbalanced_brackets(text: str, is_deeper: bool) -> None:
    assert nests_deeper(text.encode(), 3) == is_deeper
