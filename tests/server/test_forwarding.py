"""Bodies that are read whole: up to a limit, and never a part for the whole."""

import asyncio
from collections.abc import Iterable

import pytest
from starlette.types import Message

from surefoot.server.bodies import ClientGone, read_body
from surefoot.server.errors import ApiError


def part(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def body_of(messages: Iterable[Message], most: int | None = None) -> bytes:
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return asyncio.run(read_body(receive, most))


def test_parts_are_joined() -> None:
    assert body_of([part(b"ab", True), part(b"", True), part(b"c", False)]) == b"abc"
    assert body_of([{"type": "http.request"}]) == b""


def test_a_client_that_disconnects_has_sent_no_body() -> None:
    with pytest.raises(ClientGone):
        body_of([part(b'{"messages": []}', True), {"type": "http.disconnect"}])


def test_a_body_is_refused_at_its_first_byte_too_many() -> None:
    assert body_of([part(b"ab", True), part(b"c", False)], 3) == b"abc"
    with pytest.raises(ApiError) as refused:
        body_of([part(b"ab", True), part(b"cd", True)], 3)  # asks for no third message
    assert refused.value.status == 413
