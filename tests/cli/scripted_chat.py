"""`surefoot chat` with a model whose words are written here: no real one can be made to say what a test needs.

Only the model is a stand-in; the terminal, the prompt and the conversation are the real ones.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from surefoot.api import LLM, Piece
from surefoot.api.opening import OpenModel
from surefoot.cli import chat
from surefoot.cli.one_user import OneUserOptions
from surefoot.core import SamplingParams

HOSTILE = "before\x1b]0;owned\x07 \x1b[2J\x9b31mafter\x7f \x08end"
LONG = " ".join(f"word{number}" for number in range(60))
WIDE = "這是一個很長的句子。" * 8
ANSWERS = {"hostile": HOSTILE, "long": LONG, "wide": WIDE}


class ScriptedModel:
    config = SimpleNamespace(family="scripted", layers=())
    max_context = 512
    backend = SimpleNamespace(variant="none", threads=1)
    sampling_defaults = "greedy"

    def stream(self, messages: list[dict[str, str]], params: SamplingParams) -> Iterator[Piece]:
        """Three letters at a time, as tokens come; "slow" has no end."""
        text = messages[-1]["content"]
        if text == "fail":
            raise RuntimeError("as asked")
        if text == "slow":
            for number in range(1000):
                time.sleep(0.02)
                yield _piece(f"slow{number} ")
        answer = ANSWERS.get(text, f"heard {text!r}.")
        for start in range(0, len(answer), 3):
            yield _piece(answer[start : start + 3])


def _piece(text: str) -> Any:
    return SimpleNamespace(text=text, output=None)


def _load(*_: Any) -> LLM:
    return ScriptedModel()  # type: ignore[return-value]


def _open(*_: Any, **__: Any) -> OpenModel:
    return SimpleNamespace(sampling=SimpleNamespace(params=SamplingParams()))  # type: ignore[return-value]


if __name__ == "__main__":
    OneUserOptions.open, OneUserOptions.load = _open, _load  # type: ignore[method-assign]
    chat.needs_template = lambda *_: None
    chat.chat(model=Path("scripted.gguf"), stats=False)
