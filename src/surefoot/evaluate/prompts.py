"""Reads a user's own prompts as windows: lines of JSON, each a string or an object with a string."""

import json
from pathlib import Path

from surefoot.evaluate.windows import TextError
from surefoot.text import Tokenizer

KEYS = ("prompt", "text", "content", "input")  # keys of an object that may have the prompt
MIN_TOKENS = 4  # of a prompt: its second half is predicted


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
