"""What gateways and servers say to each other arrives as it was sent, however it is cut."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.api.answers import SentToken
from surefoot.fleet.frames import ForwardedRequest, FrameKind, FrameReader, encode_frame
from surefoot.sampling import TokenLogprobs
from surefoot.server.access.request_context import ReplyIdentity

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TOPS = st.lists(st.tuples(st.integers(0, 10**6), FLOATS), max_size=3).map(tuple)


@st.composite
def tokens(draw: st.DrawFn) -> SentToken:
    token = draw(st.integers(0, 10**6))
    logprobs = TokenLogprobs(token, draw(FLOATS), draw(TOPS)) if draw(st.booleans()) else None
    return SentToken(draw(st.integers(0, 63)), token, logprobs)


# What HTTP lets a header have.
VALUES = st.text(st.characters(codec="latin-1", exclude_categories=("Cc",)))


@given(st.lists(tokens()), st.binary(), VALUES, st.integers(0, 10**6), st.floats(1e-9, 1.0), st.booleans())
def test_a_request_arrives_as_it_was_sent(
    sent: list[SentToken], body: bytes, text: str, skipped: int, share: float, is_charged: bool
) -> None:
    identity = ReplyIdentity("ab" * 16, 1_700_000_000, 2**64 - 1)
    request = ForwardedRequest("POST", "/v1/x", "a=b", (("host", text),), body, identity, tuple(sent), skipped)
    request = replace(request, share=share, is_charged=is_charged)
    assert ForwardedRequest.decode(request.encode()) == request


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_is_a_part_of_one(share: float) -> None:
    request = ForwardedRequest("POST", "/v1/x", "", (), b"", ReplyIdentity("ab" * 16, 0, 0), share=share)
    with pytest.raises(ValueError, match="share"):
        ForwardedRequest.decode(request.encode())


@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.binary())), st.integers(1, 9))
def test_frames_arrive_as_they_were_sent(frames: list[tuple[FrameKind, bytes]], size: int) -> None:
    data = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\2{}", b"\0\0\0\2[]", b"\0\0\0\4null", b"\0\0\0\3{]}"])
def test_a_malformed_request_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ForwardedRequest.decode(data)


def test_a_frame_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        list(FrameReader().feed(b"b\xff\xff\xff\xff"))
