"""A text's tokens in windows that are predicted one by one, as llama.cpp's perplexity tool cuts them."""

from collections.abc import Sequence

from surefoot.text import Tokenizer


class TextError(ValueError):
    """The text does not fill a window."""


def cut_windows(tokenizer: Tokenizer, text: str, context: int, limit: int = 0) -> list[list[int]]:
    """The first `limit` tokens (0: all) in windows of `context`; what does not fill a window is left out.

    A tokenizer that begins every text with a token begins every window with it, in place of the window's first."""
    tokens = tokenizer.encode(text)[: limit or None]
    windows = [tokens[start : start + context] for start in range(0, len(tokens) - context + 1, context)]
    if not windows:
        raise TextError(f"{len(tokens)} tokens of text do not fill one window of {context}: give more, or --context")
    return [_begun(window, tokenizer.ids.before) for window in windows]


def _begun(window: list[int], before: Sequence[int]) -> list[int]:
    return [*before, *window[len(before) :]]


def first_scored(context: int) -> int:
    """Predictions count from the middle of a window on, where there is half a window to predict from."""
    return context // 2
