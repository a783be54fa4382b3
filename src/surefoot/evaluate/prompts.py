"""A user's own prompts as windows: lines of JSON, each a text or an object that has one."""

import json
from pathlib import Path

from surefoot.evaluate.windows import TextError
from surefoot.text import Tokenizer

KEYS = ("prompt", "text", "content", "input")
LEAST = 4  # tokens: a prompt's second half is predicted


def read_prompts(path: Path, tokenizer: Tokenizer, context: int) -> list[list[int]]:
    """Each prompt's tokens, cut to the context; prompts of fewer than 4 tokens are left out."""
    windows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            tokens = tokenizer.encode(_text(path, number, line))[:context]
            if len(tokens) >= LEAST:
                windows.append(tokens)
    if not windows:
        raise TextError(f"{path} has no prompt of {LEAST} tokens or more")
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
            return "\n".join(str(one.get("content", "")) for one in value["messages"] if isinstance(one, dict))
        found = next((value[key] for key in KEYS if isinstance(value.get(key), str)), None)
        if found is not None:
            return str(found)
    raise TextError(f"{path}, line {number}: a text, or an object with {', '.join(KEYS)} or messages, is wanted")
