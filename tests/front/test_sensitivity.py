"""The rule of what may leave: every case. What it is asked of: headers, patterns, the texts of a body."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from surefoot.front.conversation import messages_in, texts_in
from surefoot.front.patterns import PrivatePatterns
from surefoot.front.sensitivity import Findings, Privacy, Upstream, decide, declared_by

PUBLIC, INTERNAL, PRIVATE = Privacy


def upstream(allows: Privacy) -> Upstream:
    return Upstream("u", "https://api.example.org/v1", "m", allows)


def test_it_leaves_only_if_everything_allows_it() -> None:
    """The whole domain, also an upstream that would allow private requests, which no file can say."""
    names = ((), ("v",), ("u", "v"))
    amounts = ((None, 9), (0, 0), (9, 9), (9, 8))  # what it may cost, and what is left
    num_leaving = 0
    for levels in product(Privacy, repeat=3):
        for allows, obstacle, by_key, by_route, (most, left) in product(Privacy, (None, "path"), names, names, amounts):
            verdict = decide(Findings(*levels, obstacle), upstream(allows), by_key, by_route, most, left)
            all_allow = "u" in by_key and "u" in by_route and obstacle is None and most is not None and most <= left
            assert verdict.leaves == (all_allow and max(levels) <= allows and max(levels) < PRIVATE)
            assert verdict.rule
            num_leaving += verdict.leaves
    assert num_leaving == 2 * (1 + 8 + 8)


def test_what_is_found_only_makes_a_request_more_private() -> None:
    for declared, detected, past in product(Privacy, repeat=3):
        found = Findings(declared, detected, past)
        for other in (replace(found, detected=PUBLIC), replace(found, past=PUBLIC), Findings(declared)):
            assert found.level >= other.level >= declared


def test_by_default_everything_stays() -> None:
    assert Findings().level is PRIVATE


@pytest.mark.parametrize(
    ("values", "level"),
    [
        (["public"], PUBLIC), (["internal"], INTERNAL), (["private"], PRIVATE), ([], PRIVATE), ([""], PRIVATE),
        (["Public"], PRIVATE), (["public "], PRIVATE), (["public, public"], PRIVATE), (["public", "public"], PRIVATE),
        (["public", "private"], PRIVATE), (["0"], PRIVATE),
    ],
)  # fmt: skip
def test_only_one_known_word_declares(values: list[str], level: Privacy) -> None:
    assert declared_by(values) is level


# ---- patterns ----


def test_patterns() -> None:
    patterns = PrivatePatterns([r"(?i)confidential", r"\bDE\d{20}\b"])
    assert patterns.match("strictly CONFIDENTIAL: no")
    assert patterns.match("to\nDE12345678901234567890.")
    assert not patterns.match("DE1234")
    assert not PrivatePatterns([]).match("anything")
    with pytest.raises(ValueError, match="surrogates"):
        patterns.match("\ud800 confidential")


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "a{1000}{1000}{1000}"])
def test_patterns_that_need_another_engine(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^(unclosed group|.* not supported|.* size limit of \d+ bytes\.)$"):
        PrivatePatterns([pattern])


def test_a_pattern_that_makes_other_engines_go_back_for_ever() -> None:
    """`re` would try 2 to the 200,000th ways."""
    assert not PrivatePatterns([r"^(a|a)*(a|a)*(a+)+$"]).match("a" * 200_000 + "!")


# ---- texts ----

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({}, []),
        ({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " Hi\n"}]}, ["Hi"]),
        ({"messages": [{"role": "developer", "content": "S"}, {"role": "tool", "content": "Hi"}]}, ["Hi"]),
        ({"messages": [{"content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}]}]}, ["Hi you"]),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]}, ['{"path": "a"}']),
        ({"system": "S", "messages": [{"content": [{"type": "tool_result", "content": "file"}]}]}, ["file"]),
        ({"instructions": "S", "input": "Hi"}, ["Hi"]),
        ({"input": [{"role": "user", "content": "Hi"}, {"call_id": "1", "output": "file"}]}, ["Hi", "file"]),
        ({"prompt": ["Hi", "you", [1, 2]]}, ["Hi", "you"]),
        ({"prompt": [1, 2]}, []),
        ({"input_prefix": "a", "prompt": "", "input_suffix": "b"}, ["a", "b"]),
        ({"messages": "Hi", "input": 5, "prompt": None}, ["Hi"]),
    ],
)
def test_messages_of_every_api(given: dict[str, Any], texts: list[str]) -> None:
    assert list(messages_in(given)) == texts


def test_patterns_see_everything_in_a_body() -> None:
    given = {"messages": [{"role": "user", "content": [{"k\u00e9y": 4111}]}], "tools": [CALL], "n": None, "b": True}
    texts = list(texts_in(given))
    assert {"user", "k\u00e9y", "4111", "read", '{"path": "a"}', "True", "tools"} <= set(texts)
