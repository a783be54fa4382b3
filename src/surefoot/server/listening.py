"""The server's address, taken before the model is loaded: a port in use is told at once, not after minutes.

Until the server is ready nothing listens: a client that connects early is refused, not left to wait.
"""

import errno
import socket
from collections.abc import Iterator, Sized

from surefoot.server.settings import Settings

REASONS = {
    errno.EADDRINUSE: "another program uses it: end that program, or give another --port",
    errno.EACCES: "this user may not use it: give a --port above 1023",
    errno.EADDRNOTAVAIL: "this machine has no such address: give one of its own with --host",
}


class AddressError(ValueError):
    """The server cannot have the address that it was given."""


class UnsafeBind(ValueError):
    """The server would be open to others without keys."""


def check_bind(settings: Settings, keys: Sized | None) -> None:
    if not settings.is_loopback and not keys:
        raise UnsafeBind(
            f"{settings.host} can be reached from elsewhere, which needs keys: make one with `surefoot keys add "
            "keys.toml --user NAME`, then start with --keys keys.toml"
        )


def bind(host: str, port: int) -> list[socket.socket]:
    """A bound socket for each address of the host, all with one port; nothing listens yet."""
    bound: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            bound.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before may linger
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port or bound[0].getsockname()[1], *address[2:]))
    except OSError as error:
        for sock in bound:
            sock.close()
        raise _refusal(host, port, error) from None
    return bound


def listen(sockets: list[socket.socket], backlog: int) -> None:
    """Of two servers that have bound one port, the second to listen is refused. (uvloop would say nothing.)"""
    for sock in sockets:
        try:
            sock.listen(backlog)
        except OSError as error:
            host, port = sock.getsockname()[:2]
            raise _refusal(host, port, error) from None


def _refusal(host: str, port: int, error: OSError) -> AddressError:
    """What to do about an address that the system did not grant."""
    reason = REASONS.get(error.errno or 0, error.strerror or str(error))
    return AddressError(f"the server cannot have {host} port {port}: {reason}")


def _addresses(host: str, port: int) -> Iterator[tuple[int, tuple]]:  # type: ignore[type-arg]
    flags = socket.AI_PASSIVE
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags):
        if family in (socket.AF_INET, socket.AF_INET6):
            yield family, address
