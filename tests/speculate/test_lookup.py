"""Lookup finds the longest match there is, keeps namespaces apart and stays small."""

from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import Request, SampleKey
from surefoot.speculate import Lookup
from surefoot.speculate.lookup import GENERATION_TOKENS, MOST_NAMESPACES, kind_of
from surefoot.speculate.ngrams import BREAK, LONGEST, MOST_TRIED, ORDERS, NgramIndex

TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def longest_match(tokens: list[int], text: list[int]) -> int:
    """By trying every place."""
    best = 0
    for place in range(1, len(tokens)):
        length = 0
        while length < min(place, len(text), LONGEST) and tokens[place - 1 - length] == text[-1 - length]:
            length += 1
        best = max(best, length)
    return best


@given(st.lists(st.integers(0, 12), min_size=2, max_size=60))
def test_finds_the_longest_match_of_its_own_end(tokens: list[int]) -> None:
    index = NgramIndex(tokens)
    found = index.find(tokens)
    length = longest_match(tokens, tokens)
    if found is None:
        assert length < min(ORDERS)
        return
    assert 0 < found.place < len(tokens)
    assert tokens[found.place - found.length : found.place] == tokens[len(tokens) - found.length :]
    last = tokens[-ORDERS[0] :] if found.length >= ORDERS[0] else tokens[-ORDERS[1] :]
    places = [end for end in range(len(last), len(tokens)) if tokens[end - len(last) : end] == last]
    if len(places) < MOST_TRIED:  # else the longest may lie further back
        assert found.length == length


@given(TEXTS, TEXTS)
def test_a_match_in_another_text_is_one(tokens: list[int], text: list[int]) -> None:
    found = NgramIndex(tokens).find(text)
    if found is not None:
        assert found.length >= min(ORDERS)
        assert tokens[found.place - found.length : found.place] == text[len(text) - found.length :]


@given(TEXTS, st.integers(1, 20))
def test_what_stands_behind(tokens: list[int], count: int) -> None:
    index = NgramIndex(tokens)
    for place in range(1, len(tokens)):
        found = index.behind(place, count)
        looped = tokens + [0] * count
        for number in range(count):
            looped[len(tokens) + number] = looped[place + number]
        assert list(found) == looped[place : place + count]


def test_nothing_crosses_a_break() -> None:
    index = NgramIndex([1, 2, 3, BREAK, 1, 2])
    assert index.behind(2, 5) == (3,)


def request(namespace: str, prompt: tuple[int, ...]) -> Request:
    return Request("r", prompt, namespace=namespace)


def served(lookup: Lookup, namespace: str, prompt: tuple[int, ...], answer: list[int]) -> None:
    key = SampleKey(f"{namespace}{prompt}")
    lookup.start(key, request(namespace, prompt), prompt)
    lookup.advance(key, answer)
    lookup.end(key)


def drafted(lookup: Lookup, namespace: str, prompt: tuple[int, ...], depth: int) -> tuple[int, ...]:
    key = SampleKey("now")
    lookup.start(key, request(namespace, prompt), prompt)
    (prospect,) = lookup.prospects([key], depth)
    drafts = lookup.draft({key: prospect.most})
    del lookup._texts[key]
    return drafts.get(key, ())


def test_out_of_the_prompt() -> None:
    assert drafted(Lookup(), "", (1, 2, 3, 4, 5, 6, 9, 1, 2), 3) == (3, 4, 5)
    assert drafted(Lookup(), "", (1, 2, 3), 3) == ()
    assert drafted(Lookup(), "", (7, 8, 7, 8), 5) == (7, 8, 7, 8, 7)


def test_out_of_what_the_same_namespace_was_answered_and_no_other() -> None:
    lookup = Lookup()
    served(lookup, "ada", (1, 2, 3), [11, 12, 13, 14])
    assert drafted(lookup, "ada", (1, 2, 3), 9) == (11, 12, 13, 14)
    assert drafted(lookup, "ada", (5, 11, 12), 2) == (13, 14)
    assert drafted(lookup, "bob", (1, 2, 3), 9) == ()


def test_a_longer_match_elsewhere_goes_before_a_short_one_in_the_text() -> None:
    lookup = Lookup()
    served(lookup, "", (1, 2, 3, 4), [21, 22])
    assert drafted(lookup, "", (3, 4, 99, 1, 2, 3, 4), 2) == (21, 22)


def test_memory_is_bounded() -> None:
    lookup = Lookup()
    for number in range(3 * GENERATION_TOKENS // 100):
        served(lookup, "", (number,), list(range(number, number + 100)))
    served(lookup, "", (1,), [5] * 3 * GENERATION_TOKENS)
    history = lookup._histories[""]
    assert len(history._young) + len(history._old) <= 2 * GENERATION_TOKENS + 2
    for number in range(2 * MOST_NAMESPACES):
        served(lookup, f"n{number}", (1, 2), [3, 4])
    assert len(lookup._histories) == MOST_NAMESPACES
    assert drafted(lookup, f"n{2 * MOST_NAMESPACES - 1}", (1, 2), 2) == (3, 4)
    assert drafted(lookup, "n0", (1, 2), 2) == ()


def test_kinds_tell_long_matches_from_short_ones() -> None:
    assert len({kind_of(length, own) for length in (2, 4, 8, 16, 32) for own in (True, False)}) == 10
    assert kind_of(8, True) == kind_of(15, True)
