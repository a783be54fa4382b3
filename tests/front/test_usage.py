"""The usage in an upstream's reply, and what the client gets of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.front.usage import MOST_READ_BYTES, ReadReply, TokenUsage

TOLD = {"prompt_tokens": 7, "completion_tokens": 3}
EVENTS = [
    b'data: {"choices": [{"delta": {"content": "Hi, \\"usage\\""}}], "usage": null}\n\n',
    b": a comment\r\n\r\n",
    b'data: {"choices": [], "usage": %s}\n\n' % json.dumps(TOLD).encode(),
    b"data: [DONE]\n\n",
]


def read(reply: ReadReply, data: bytes, cuts: list[int]) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        places = sorted({0, *cuts, len(data)})
        for begin, end in pairwise(places):
            yield data[begin:end]

    async def passed() -> bytes:
        return b"".join([chunk async for chunk in reply.passed(chunks())])

    return asyncio.run(passed())


@given(st.lists(st.integers(0, len(b"".join(EVENTS)))), st.booleans())
def test_a_stream_however_it_is_cut(cuts: list[int], hides: bool) -> None:
    reply, data = ReadReply(is_stream=True, hides_usage=hides), b"".join(EVENTS)
    passed = read(reply, data, cuts)
    assert reply.usage == TokenUsage(7, 3)
    assert passed.replace(b"\n", b"") == b"".join(EVENTS[:2] * hides + EVENTS[3:] * hides or EVENTS).replace(b"\n", b"")


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"usage": TOLD}, TokenUsage(7, 3)),
        ({"usage": {**TOLD, "prompt_tokens": -1}}, None),
        ({"usage": {**TOLD, "completion_tokens": 1.5}}, None),
        ({"usage": {**TOLD, "completion_tokens": True}}, None),
        ({"usage": {"prompt_tokens": 7}}, None),
        ({"usage": []}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_whole_answer(body: object, usage: TokenUsage | None) -> None:
    reply, data = ReadReply(is_stream=False), json.dumps(body).encode()
    assert read(reply, data, []) == data
    assert reply.usage == usage


def test_what_is_no_json_or_too_long() -> None:
    for data in (b"{", b"\xff", b"[" * 100_000, b"{}" + b" " * MOST_READ_BYTES):
        reply = ReadReply(is_stream=False)
        assert read(reply, data, []) == data
        assert reply.usage is None
    with pytest.raises(ValueError, match="a line of more than"):
        read(ReadReply(is_stream=True, hides_usage=True), b"x" * (MOST_READ_BYTES + 1), [])
