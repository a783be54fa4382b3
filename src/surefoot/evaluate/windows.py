"""Cuts a text's tokens into windows, as llama.cpp's perplexity tool does, and reads prompts from files."""

import json
from collections.abc import Sequence
from pathlib import Path

from surefoot.text import Tokenizer

Windows = Sequence[Sequence[int]]  # the token ids of each window
KEYS = ("prompt", "text", "content", "input")  # keys of an object that may have the prompt
MIN_TOKENS = 4  # of a prompt: its second half is predicted


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


def read_prompts(path: Path, tokenizer: Tokenizer, context: int) -> list[list[int]]:
    """The tokens of each prompt, at most `context`. Prompts of fewer than MIN_TOKENS tokens are skipped."""
    windows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            tokens = tokenizer.encode(_text(path, number, line))[:context]
            if len(tokens) >= MIN_TOKENS:
                windows.append(tokens)
    if not windows:
        raise TextError(f"{path} has no prompt of {MIN_TOKENS} tokens or more: give longer ones")
    return windows


def _text(path: Path, number: int, line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as wrong:
        raise TextError(f"{path}, line {number}: not JSON ({wrong})") from None
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if isinstance(value.get("messages"), list):
            return "\n".join(
                str(message.get("content", "")) for message in value["messages"] if isinstance(message, dict)
            )
        text = next((value[key] for key in KEYS if isinstance(value.get(key), str)), None)
        if text is not None:
            return str(text)
    raise TextError(f"{path}, line {number}: give a string, or an object with one of {', '.join(KEYS)}, messages")
