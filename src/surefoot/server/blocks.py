"""Answers as rows of blocks, as Anthropic's and OpenAI's newer clients see them: thinking, text, calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from surefoot.server.parts import Delta


class Kind(Enum):
    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"


@dataclass
class Block:
    """id, name: of a call. text: so far; a call's is its arguments."""

    kind: Kind
    index: int
    id: str = ""
    name: str = ""
    text: str = ""


class Change(Enum):
    START = "start"
    MORE = "more"
    STOP = "stop"


class Blocks:
    """A block ends when another begins."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._is_open = False

    def feed(self, delta: Delta) -> Iterator[tuple[Change, Block, str]]:
        """What changed: a block begins, has more text, ends."""
        if delta.reasoning:
            yield from self._more(Kind.THINKING, delta.reasoning)
        if delta.content:
            yield from self._more(Kind.TEXT, delta.content)
        for call in delta.tool_calls:
            function = call["function"]
            if "id" in call:
                yield from self._begin(Block(Kind.CALL, len(self.blocks), call["id"], function["name"]))
            if function["arguments"]:
                yield from self._more(Kind.CALL, function["arguments"])

    def finish(self) -> Iterator[tuple[Change, Block, str]]:
        if self._is_open:
            self._is_open = False
            yield Change.STOP, self.blocks[-1], ""

    def _begin(self, block: Block) -> Iterator[tuple[Change, Block, str]]:
        yield from self.finish()
        self.blocks.append(block)
        self._is_open = True
        yield Change.START, block, ""

    def _more(self, kind: Kind, text: str) -> Iterator[tuple[Change, Block, str]]:
        if not self._is_open or self.blocks[-1].kind is not kind:
            yield from self._begin(Block(kind, len(self.blocks)))
        self.blocks[-1].text += text
        yield Change.MORE, self.blocks[-1], text


def blocks_of(whole: Delta) -> list[Block]:
    blocks = Blocks()
    for _ in blocks.feed(whole):
        pass
    return blocks.blocks
