"""Server-sent events: one event as bytes, and the streams of chunks that OpenAI's clients read."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from surefoot.server.errors import ApiError
from surefoot.server.service import RequestRun
from surefoot.server.stream_position import StreamPosition


class ChunkTemplate:
    """Writes chunks that differ only in their choices and usage: the rest is serialised once."""

    def __init__(self, head: dict[str, Any], usage: bool) -> None:
        """usage: every chunk has this field, null in all but the last."""
        self._head = json.dumps(head, separators=(",", ":"))[:-1]
        self._tail = ',"usage":null}' if usage else "}"

    def event(self, choice: dict[str, Any], position: StreamPosition) -> bytes:
        text = json.dumps(choice, separators=(",", ":"))
        return f'id: {position}\ndata: {self._head},"choices":[{text}]{self._tail}\n\n'.encode()

    def last(self, usage: dict[str, Any], position: StreamPosition) -> bytes:
        text = json.dumps(usage, separators=(",", ":"))
        return f'id: {position}\ndata: {self._head},"choices":[],"usage":{text}}}\n\n'.encode()


def comments(run: RequestRun) -> Callable[[], Awaitable[bytes]]:
    """Makes a comment, which clients pass over, that tells how far the prompt has come."""
    return partial(run.beat, lambda progress: f": prompt {progress.processed}/{progress.total}\n\n".encode())


def event(data: Any, name: str | None = None) -> bytes:
    lines = [] if name is None else [f"event: {name}"]
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return ("\n".join([*lines, f"data: {text}"]) + "\n\n").encode()


async def openai_stream(chunks: AsyncIterator[bytes], refuse: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
    """The chunks, then `[DONE]`. An error ends the stream as an event of its own, and is counted."""
    try:
        async for chunk in chunks:
            yield chunk
    except ApiError as error:
        refuse(error.status)
        yield event(error.as_openai())
        return
    yield event("[DONE]")
