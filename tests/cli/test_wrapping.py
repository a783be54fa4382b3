"""Words wrapped while they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from surefoot.cli.wrapping import Verbatim, WordWrap, visible

BREAK = "\x1f"  # in place of a line feed, so that breaks of the text's own are told from ours
ALPHABET = "ab漢字é🙂 \n.-`"
TEXTS = st.text(ALPHABET, max_size=200)
WIDTHS = st.integers(2, 30)


def wrapped(text: str, width: int, pieces: int = 1, line_break: str = "\n") -> str:
    layout = WordWrap(lambda: width, line_break)
    out = [layout.feed(text[start : start + pieces]) for start in range(0, len(text), pieces)]
    return "".join([*out, layout.finish()])


def without_blanks(text: str) -> str:
    """Spaces, which a break or a line's end may take the place of."""
    return text.replace(" ", "")


@given(TEXTS, WIDTHS, st.integers(1, 7))
def test_without_the_breaks_it_is_the_text(text: str, width: int, pieces: int) -> None:
    got = wrapped(text, width, pieces, BREAK)
    assert without_blanks(got.replace(BREAK, "")) == without_blanks(text)


@given(TEXTS, WIDTHS, st.integers(1, 7))
def test_how_it_comes_in_pieces_does_not_show(text: str, width: int, pieces: int) -> None:
    assert wrapped(text, width, pieces) == wrapped(text, width, len(text) or 1)


@given(st.text(ALPHABET.replace("`", ""), max_size=200), WIDTHS)
def test_no_line_is_wider_than_the_terminal(text: str, width: int) -> None:
    assert all(cell_len(line) <= width for line in wrapped(text, width).split("\n"))


@given(st.lists(st.text("abc", min_size=1, max_size=8), max_size=40), st.integers(8, 30))
def test_no_word_is_broken_that_fits_a_line(words: list[str], width: int) -> None:
    lines = wrapped(" ".join(words), width).split("\n")
    assert [word for line in lines for word in line.split()] == words
    followers = [line.split()[0] for line in lines[1:]]
    assert all(len(line) + 1 + len(word) > width for line, word in zip(lines, followers, strict=False))


def test_a_text_that_fits_is_left_alone() -> None:
    text = "# Title\n\n  - one\n  - two  \n\tthree\n\n漢字 and 🙂\n"
    assert wrapped(text, 40) == text


def test_wide_characters_break_between_them_and_count_twice() -> None:
    assert wrapped("漢字漢字漢", 5) == "漢字\n漢字\n漢"
    assert wrapped("ab 漢字", 5) == "ab 漢\n字"


def test_a_joined_emoji_stays_whole() -> None:
    family = "👩\u200d👩\u200d👧"
    assert all(line in ("", family, "x") for line in wrapped(f"x{family}{family}", 2).split("\n"))


def test_a_word_longer_than_a_line_is_cut() -> None:
    assert wrapped("see abcdefghij", 4) == "see\nabcd\nefgh\nij"


def test_words_show_before_the_answer_ends() -> None:
    layout = WordWrap(lambda: 20)
    assert layout.feed("Once upon") == "Once"
    assert layout.feed(" a") == " upon"


def test_code_is_left_as_it_is() -> None:
    code = "```python\nprint('a line that is longer than the terminal is wide')\n  ``\n```\n"
    assert wrapped(f"{code}and words again", 10) == f"{code}and words\nagain"
    assert wrapped("```not a block``` but words\nand more of them", 10).count("\n") > 3


def test_the_width_may_change() -> None:
    widths = iter([40] * 8 + [6] * 100)
    layout = WordWrap(lambda: next(widths))
    text = layout.feed("one two three four five six seven eight nine ten") + layout.finish()
    assert all(len(line) <= 40 for line in text.split("\n"))
    assert len(text.split("\n")[-1]) <= 6


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    shown = visible(text)
    assert not [char for char in shown if (ord(char) < 0x20 and char not in "\t\n") or 0x7F <= ord(char) < 0xA0]
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("\x1b[31m", "␛[31m"), ("a\r\nb", "a\nb"), ("\x07", "␇"), ("\x9b2J", "�2J")]
)
def test_control_characters_become_pictures(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_a_pipe_gets_the_text_itself(text: str) -> None:
    layout = Verbatim()
    assert layout.feed(text) + layout.finish() == text
