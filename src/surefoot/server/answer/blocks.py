"""Answers as lists of blocks (thinking, text, tool calls), the form of Anthropic's API and OpenAI's Responses."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from surefoot.api.answers import CompletionOutput, Piece
from surefoot.server.answer.custom_calls import CUSTOM
from surefoot.server.answer.parsing import MessageDelta
from surefoot.server.service import RequestRun


class BlockKind(Enum):
    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"


@dataclass
class Block:
    """One block of an answer."""

    kind: BlockKind
    index: int
    id: str = ""  # of a call
    name: str = ""  # of the called tool
    text: str = ""  # so far; for a call, its arguments
    is_custom: bool = False  # a call whose text is free, not JSON


class BlockChange(Enum):
    START = "start"
    MORE = "more"
    STOP = "stop"


Change = tuple[BlockChange, Block, str]  # the text that a block gets more of


class ParsedAnswer(Protocol):
    """A request in the engine, whose answers are parsed."""

    run: RequestRun

    def parts_of(self, answer: CompletionOutput) -> MessageDelta:
        """All of an answer that has ended."""

    def deltas(self) -> AsyncIterator[tuple[Piece, MessageDelta]]: ...


class Blocks:
    """Cuts an answer's deltas into blocks. A block ends when another begins."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._is_open = False

    def feed(self, delta: MessageDelta) -> Iterator[Change]:
        """The changes that a delta makes: a block starts, gets more text, or stops."""
        if delta.reasoning:
            yield from self._more(BlockKind.THINKING, delta.reasoning)
        if delta.content:
            yield from self._more(BlockKind.TEXT, delta.content)
        for call in delta.tool_calls:
            function = call["function"]
            if "id" in call:
                is_custom = call["type"] == CUSTOM
                place = len(self.blocks)
                yield from self._begin(Block(BlockKind.CALL, place, call["id"], function["name"], is_custom=is_custom))
            if function["arguments"]:
                yield from self._more(BlockKind.CALL, function["arguments"])

    async def changes(self, answer: ParsedAnswer) -> AsyncIterator[Change]:
        """All changes of a request's only answer, as they come."""
        async for _, delta in answer.deltas():
            for change in self.feed(delta):
                yield change
        for change in self.finish():
            yield change

    def finish(self) -> Iterator[Change]:
        if self._is_open:
            self._is_open = False
            yield BlockChange.STOP, self.blocks[-1], ""

    def _begin(self, block: Block) -> Iterator[Change]:
        yield from self.finish()
        self.blocks.append(block)
        self._is_open = True
        yield BlockChange.START, block, ""

    def _more(self, kind: BlockKind, text: str) -> Iterator[Change]:
        if not self._is_open or self.blocks[-1].kind is not kind:
            yield from self._begin(Block(kind, len(self.blocks)))
        self.blocks[-1].text += text
        yield BlockChange.MORE, self.blocks[-1], text


def blocks_of(whole: MessageDelta) -> list[Block]:
    blocks = Blocks()
    for _ in blocks.feed(whole):
        pass
    return blocks.blocks
