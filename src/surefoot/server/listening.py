"""The server's address, bound before the model is loaded, so that a port in use is reported at once.

The sockets listen only when the server is ready: a client that connects early is refused and does not wait. Unless a
service manager holds the sockets (systemd's protocol of LISTEN_FDS): then clients wait from one process to the next.
"""

import errno
import functools
import os
import socket
from collections.abc import Iterator, Sized

from surefoot.server.settings import LOOPBACK, ServerSettings

FIRST_HELD = 3  # descriptor of the first held socket
REASONS = {
    errno.EADDRINUSE: "another program uses it: end that program, or give another --port",
    errno.EACCES: "this user may not use it: give a --port above 1023",
    errno.EADDRNOTAVAIL: "this machine has no such address: give one of its own with --host",
}


class AddressError(ValueError):
    """The server cannot bind its address."""


class UnsafeBind(ValueError):
    """The server would be reachable from other machines without keys."""


def check_bind(settings: ServerSettings, keys: Sized | None) -> None:
    if not settings.is_loopback and not keys:
        raise UnsafeBind(
            f"{settings.host} can be reached from elsewhere, which needs keys: make one with `surefoot keys add "
            "keys.toml --user NAME`, then start with --keys keys.toml"
        )


@functools.cache
def held_sockets() -> tuple[socket.socket, ...]:
    """Listening sockets that a service manager hands to this process; empty: it binds its own."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return ()
    return tuple(socket.socket(fileno=FIRST_HELD + number) for number in range(int(os.environ["LISTEN_FDS"])))


def held_address() -> tuple[str, int] | None:
    """Host and port of the held sockets; that which other machines reach, if they differ. None: there are none."""
    names = sorted((sock.getsockname()[:2] for sock in held_sockets()), key=lambda name: name[0] in LOOPBACK)
    return names[0] if names else None


def bind(host: str, port: int) -> list[socket.socket]:
    """A bound socket for each address of the host, all with the same port. They do not listen yet. Sockets that a
    service manager holds come before."""
    if held := held_sockets():
        return [*held]
    bound: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            bound.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier server may linger
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port or bound[0].getsockname()[1], *address[2:]))
    except OSError as error:
        for sock in bound:
            sock.close()
        raise _refusal(host, port, error) from None
    return bound


def listen(sockets: list[socket.socket], backlog: int) -> None:
    """Listen on the sockets. Two servers can bind one port; the second to listen gets an error. (uvloop would hide
    it.)"""
    for sock in sockets:
        try:
            sock.listen(backlog)
        except OSError as error:
            host, port = sock.getsockname()[:2]
            raise _refusal(host, port, error) from None


def _refusal(host: str, port: int, error: OSError) -> AddressError:
    """The error for an address that the system refuses, with advice."""
    reason = REASONS.get(error.errno or 0, error.strerror or str(error))
    return AddressError(f"the server cannot bind {host} port {port}: {reason}")


def _addresses(host: str, port: int) -> Iterator[tuple[int, tuple]]:  # type: ignore[type-arg]
    flags = socket.AI_PASSIVE
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags):
        if family in (socket.AF_INET, socket.AF_INET6):
            yield family, address
