"""Cuts a text's tokens into windows, as llama.cpp's perplexity tool does."""

from collections.abc import Sequence

from surefoot.text import Tokenizer

Windows = Sequence[Sequence[int]]  # the token ids of each window


class TextError(ValueError):
    """The text does not fill a window."""


def cut_windows(tokenizer: Tokenizer, text: str, context: int, limit: int = 0) -> list[list[int]]:
    """At most `limit` tokens of the text (0: all) in windows of `context` tokens; an incomplete last window is dropped.

    If the tokenizer begins every text with a special token, that token replaces the first token of every window."""
    tokens = tokenizer.encode(text)[: limit or None]
    windows = [tokens[start : start + context] for start in range(0, len(tokens) - context + 1, context)]
    if not windows:
        raise TextError(
            f"{len(tokens)} tokens of text do not fill a window of {context}: give more text, or a smaller --context"
        )
    return [_with_start(window, tokenizer.ids.before) for window in windows]


def _with_start(window: list[int], before: Sequence[int]) -> list[int]:
    return [*before, *window[len(before) :]]


def first_scored(context: int) -> int:
    """The first scored position: the middle of a window, so that every prediction has half a window of context."""
    return context // 2
