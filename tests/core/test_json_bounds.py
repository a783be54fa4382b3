"""Bounds of JSON, compared with a parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import json_bounds
from surefoot.core.json_bounds import MOST_KEYS, MOST_NODES, MOST_NUMBERS, MOST_STRINGS, json_excess, without_strings

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}",:\\a', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{":,', max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def nodes_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(nodes_of, inner))


@given(VALUES)
def test_marks_outside_of_strings_are_the_parsers(value: Any) -> None:
    text = json.dumps(value).encode()
    marks = without_strings(text.replace(b"\\\\", b"").replace(b'\\"', b""), b"[{")
    assert len(marks) == nodes_of(value)


@given(VALUES, st.integers(0, 60))
def test_the_head_of_a_text_holds_no_more_than_all_of_it(value: Any, num_bytes: int) -> None:
    text = json.dumps(value).encode()
    head, whole = json_bounds._without_open_string(text[:num_bytes]), json_bounds.without_escapes(text)
    assert head.count(b'"') <= whole.count(b'"')
    for marks in (b"[{", b":", b","):
        assert len(without_strings(head, marks)) <= len(without_strings(whole, marks))


@pytest.mark.parametrize(
    ("item", "most", "name"),
    [("[]", MOST_NODES, "lists and objects"), ('"a"', MOST_STRINGS, "strings"), ("1", MOST_NUMBERS, "values")],
)
def test_a_text_is_refused_at_its_bound(item: str, most: int, name: str) -> None:
    assert json_excess(f"[{','.join([item] * (most - 1))}]".encode()) is None
    assert json_excess(f"[{','.join([item] * (most + 2))}]".encode()) == f"more than {most} {name}"


def test_keys_are_bounded() -> None:
    assert json_excess(b"{" + b'"a":1,' * (MOST_KEYS + 1) + b"}") == f"more than {MOST_KEYS} keys"


def test_what_stands_in_strings_does_not_count() -> None:
    code = 'x["a"] = {"b": [1, 2]};\\\n' * 100_000
    assert json_excess(json.dumps({"prompt": code, "suffix": code[::-1]}).encode()) is None
    assert json_bounds._too_much(code.encode()) is not None
