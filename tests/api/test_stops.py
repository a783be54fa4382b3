"""Stop strings never leak, in whatever pieces the text comes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from surefoot.api.answers import StopFinder

texts = st.text("ab\n", max_size=30)
stops = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=3)


def feed(text: str, stops: list[str], cuts: list[int]) -> tuple[list[str], StopFinder]:
    finder, edges = StopFinder(stops), [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    given_out = [finder.feed(text[start:end]) for start, end in pairwise(edges)]
    return [*given_out, finder.finish()], finder


@given(texts, st.text("ab\n", min_size=1, max_size=5), st.lists(st.integers(0, 30), max_size=8))
def test_text_ends_where_the_stop_string_begins(text: str, stop: str, cuts: list[int]) -> None:
    given_out, finder = feed(text, [stop], cuts)
    assert "".join(given_out) == text.partition(stop)[0]
    assert finder.found == (stop if stop in text else None)


@given(texts, stops)
def test_the_first_complete_stop_string_ends_the_text(text: str, stops: list[str]) -> None:
    """Character by character, as the finest tokens would bring it."""
    given_out, finder = feed(text, stops, list(range(30)))
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if ends:
        longest = max((stop for stop in stops if text[: ends[0]].endswith(stop)), key=len)
        assert finder.found == longest
        assert "".join(given_out) == text[: ends[0] - len(longest)]
    else:
        assert finder.found is None
        assert "".join(given_out) == text


@given(texts, stops, st.lists(st.integers(0, 30), max_size=8))
def test_no_part_of_a_stop_string_is_passed_on(text: str, stops: list[str], cuts: list[int]) -> None:
    finder, out = StopFinder(stops), ""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        out += finder.feed(text[start:end])
        for stop in stops:
            if finder.found is None:
                held = text[len(out) : end]
                assert not any((out + held).endswith(stop[:count]) for count in range(len(held) + 1, len(stop))), (
                    "a part of a stop string was given out"
                )


def test_no_text_follows_a_stop_string() -> None:
    finder = StopFinder(["END"])
    assert finder.feed("one E") == "one "
    assert finder.feed("N") == ""
    assert finder.feed("D two") == ""
    assert finder.feed("three") == ""
    assert finder.finish() == ""
    assert finder.found == "END"


def test_held_back_text_is_passed_on_at_the_end() -> None:
    finder = StopFinder(["END"])
    assert finder.feed("the EN") == "the "
    assert finder.finish() == "EN"
