"""What servers share that pass requests on to other servers."""

from starlette.types import Receive

from surefoot.server.disconnection import ClientGone
from surefoot.server.errors import too_large

# Headers about one connection, not about the message.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)


async def read_body(receive: Receive, most: int | None = None) -> bytes:
    """The whole body. most: its largest number of bytes; None: the gate checks it.

    Raises ClientGone if the client disconnects before the end: a part must not pass for the whole.
    """
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if most is not None and len(body) > most:
            raise too_large(most)
        more = message.get("more_body", False)
    return bytes(body)
