"""Lookup finds the longest match, keeps namespaces apart and bounds its memory."""

from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import Request, SampleKey
from surefoot.speculate import LookupDrafter
from surefoot.speculate.lookup import (
    BREAK,
    GENERATION_TOKENS,
    MAX_MATCH,
    MAX_NAMESPACES,
    MAX_TRIED,
    ORDERS,
    NgramIndex,
    match_kind,
)

TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def longest_match(tokens: list[int], text: list[int]) -> int:
    """By trying every position."""
    best = 0
    for end in range(1, len(tokens)):
        length = 0
        while length < min(end, len(text), MAX_MATCH) and tokens[end - 1 - length] == text[-1 - length]:
            length += 1
        best = max(best, length)
    return best


@given(st.lists(st.integers(0, 12), min_size=2, max_size=60))
def test_finds_the_longest_match_of_its_own_end(tokens: list[int]) -> None:
    index = NgramIndex(tokens)
    match = index.find(tokens)
    length = longest_match(tokens, tokens)
    if match is None:
        assert length < min(ORDERS)
        return
    assert 0 < match.end < len(tokens)
    assert tokens[match.end - match.length : match.end] == tokens[len(tokens) - match.length :]
    ngram = tokens[-ORDERS[0] :] if match.length >= ORDERS[0] else tokens[-ORDERS[1] :]
    ends = [end for end in range(len(ngram), len(tokens)) if tokens[end - len(ngram) : end] == ngram]
    if len(ends) < MAX_TRIED:  # else the longest may lie further back
        assert match.length == length


@given(TEXTS, TEXTS)
def test_a_match_in_another_text_has_equal_tokens(tokens: list[int], text: list[int]) -> None:
    match = NgramIndex(tokens).find(text)
    if match is not None:
        assert match.length >= min(ORDERS)
        assert tokens[match.end - match.length : match.end] == text[len(text) - match.length :]


@given(TEXTS, st.integers(1, 20))
def test_a_continuation_repeats_at_the_end_of_the_text(tokens: list[int], count: int) -> None:
    index = NgramIndex(tokens)
    for start in range(1, len(tokens)):
        looped = tokens + [0] * count
        for number in range(count):
            looped[len(tokens) + number] = looped[start + number]
        assert list(index.continuation(start, count)) == looped[start : start + count]


def test_no_continuation_crosses_a_break() -> None:
    index = NgramIndex([1, 2, 3, BREAK, 1, 2])
    assert index.continuation(2, 5) == (3,)


def request(namespace: str, prompt: tuple[int, ...]) -> Request:
    return Request("r", prompt, namespace=namespace)


def serve(lookup: LookupDrafter, namespace: str, prompt: tuple[int, ...], answer: list[int]) -> None:
    key = SampleKey(f"{namespace}{prompt}")
    lookup.start(key, request(namespace, prompt), prompt)
    lookup.advance(key, answer)
    lookup.end(key)


def draft(lookup: LookupDrafter, namespace: str, prompt: tuple[int, ...], depth: int) -> tuple[int, ...]:
    key = SampleKey("now")
    lookup.start(key, request(namespace, prompt), prompt)
    (offer,) = lookup.offers([key], depth)
    drafts = lookup.draft({key: offer.max_depth})
    del lookup._texts[key]
    return drafts.get(key, ())


def test_drafts_from_the_prompt() -> None:
    assert draft(LookupDrafter(), "", (1, 2, 3, 4, 5, 6, 9, 1, 2), 3) == (3, 4, 5)
    assert draft(LookupDrafter(), "", (1, 2, 3), 3) == ()
    assert draft(LookupDrafter(), "", (7, 8, 7, 8), 5) == (7, 8, 7, 8, 7)


def test_drafts_from_answers_of_the_same_namespace_only() -> None:
    lookup = LookupDrafter()
    serve(lookup, "ada", (1, 2, 3), [11, 12, 13, 14])
    assert draft(lookup, "ada", (1, 2, 3), 9) == (11, 12, 13, 14)
    assert draft(lookup, "ada", (5, 11, 12), 2) == (13, 14)
    assert draft(lookup, "bob", (1, 2, 3), 9) == ()


def test_a_longer_match_in_history_beats_a_shorter_one_in_the_text() -> None:
    lookup = LookupDrafter()
    serve(lookup, "", (1, 2, 3, 4), [21, 22])
    assert draft(lookup, "", (3, 4, 99, 1, 2, 3, 4), 2) == (21, 22)


def test_memory_is_bounded() -> None:
    lookup = LookupDrafter()
    for number in range(3 * GENERATION_TOKENS // 100):
        serve(lookup, "", (number,), list(range(number, number + 100)))
    serve(lookup, "", (1,), [5] * 3 * GENERATION_TOKENS)
    history = lookup._histories[""]
    assert len(history._young) + len(history._old) <= 2 * GENERATION_TOKENS + 2
    for number in range(2 * MAX_NAMESPACES):
        serve(lookup, f"n{number}", (1, 2), [3, 4])
    assert len(lookup._histories) == MAX_NAMESPACES
    assert draft(lookup, f"n{2 * MAX_NAMESPACES - 1}", (1, 2), 2) == (3, 4)
    assert draft(lookup, "n0", (1, 2), 2) == ()


def test_kinds_tell_long_matches_from_short_ones() -> None:
    assert len({match_kind(length, in_text) for length in (2, 4, 8, 16, 32) for in_text in (True, False)}) == 10
    assert match_kind(8, True) == match_kind(15, True)
