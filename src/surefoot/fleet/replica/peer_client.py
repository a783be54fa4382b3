"""Asks other servers of the fleet for blocks, over HTTP. Blocks while it waits: used by threads of their own."""

import http.client
import time
from urllib.parse import urlsplit

from surefoot.cache import BlockQuestion, PeerBusy
from surefoot.fleet.frames import BLOCKS_PATH, COUNT_BYTES, KEY_HEADER, decode_count, encode_question

READ_BYTES = 1 << 20
CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class HttpPeerClient:
    """A connection for each question: it carries megabytes."""

    def __init__(self, key: str) -> None:
        self._key = key

    def open(self, url: str, question: BlockQuestion, end: float) -> "HttpPeerReply":
        """end: by time.monotonic, after which every read fails. Raises OSError, ValueError if it is no server's URL."""
        place = urlsplit(url)
        if place.scheme not in CONNECTIONS or place.hostname is None:
            raise ValueError(f"not the address of a server: {url[:80]}")
        connection = CONNECTIONS[place.scheme](place.hostname, place.port, timeout=_seconds_left(end))
        try:
            connection.request("POST", BLOCKS_PATH, encode_question(question), {KEY_HEADER: self._key})
            response = connection.getresponse()
            if response.status == 503:
                raise PeerBusy
            if response.status != 200:
                raise OSError(f"status {response.status}")
            return HttpPeerReply(connection, response, end, len(question.digests))
        except http.client.HTTPException as error:
            connection.close()
            raise OSError(str(error)) from error
        except BaseException:
            connection.close()
            raise


class HttpPeerReply:
    """The answer, as it comes."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, end: float, most: int
    ) -> None:
        """most: blocks that were asked for. Raises OSError."""
        self._connection = connection
        self._response = response
        self._socket = connection.sock
        self._end = end
        self.num_blocks = decode_count(self.read(COUNT_BYTES))
        if self.num_blocks > most:
            raise OSError(f"the server has {self.num_blocks} of {most} blocks")

    def read(self, num_bytes: int) -> bytes:
        """Exactly that many bytes. Raises OSError."""
        data = bytearray()
        while len(data) < num_bytes:
            if self._socket is not None:
                self._socket.settimeout(_seconds_left(self._end))
            try:
                piece = self._response.read(min(READ_BYTES, num_bytes - len(data)))
            except http.client.HTTPException as error:
                raise OSError(str(error)) from error
            if not piece:
                raise ConnectionError("the server ended its answer early")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def _seconds_left(end: float) -> float:
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the blocks did not come in time")
    return seconds
