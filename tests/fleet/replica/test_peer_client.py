"""What another server of the fleet answers to a question for blocks, where it is none of ours."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from surefoot.cache import BlockQuestion
from surefoot.disk_cache import DIGEST_BYTES, ID_BYTES
from surefoot.fleet.replica.peer_client import HttpPeerClient
from tests.waiting import PATIENCE_S

QUESTION = BlockQuestion(bytes(ID_BYTES), bytes(ID_BYTES), (bytes(DIGEST_BYTES),) * 3)


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A server that answers one request with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            one, _ = listener.accept()
            with one:
                one.recv(1 << 16)
                one.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def test_as_many_blocks_as_were_asked_for() -> None:
    with answering(http((3).to_bytes(4, "big"))) as url:
        reply = HttpPeerClient("key").open(url, QUESTION, time.monotonic() + PATIENCE_S)
        assert reply.num_blocks == 3
        reply.close()


@pytest.mark.parametrize(
    "reply",
    [
        http((4).to_bytes(4, "big")), http(b"\xff" * 4), http(b""), http(b"\0"), b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 1000 + b"\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    ],
    ids=["one more", "billions", "nothing", "cut", "no HTTP", "headers", "a long header", "no chunk"],
)  # fmt: skip
def test_all_else_is_a_failure_that_a_fetch_expects(reply: bytes) -> None:
    with answering(reply) as url, pytest.raises(OSError, match=r".*"):
        HttpPeerClient("key").open(url, QUESTION, time.monotonic() + PATIENCE_S)
