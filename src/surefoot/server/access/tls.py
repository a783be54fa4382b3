"""TLS: a certificate that may be renewed while the server runs, and connections until their handshake is done.

asyncio's own TLS servers count a connection after its handshake: clients that never begin one would hold a descriptor
for a minute each. Here the handshake counts as waiting, so limits and deadlines of connections hold.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from surefoot.server.access.connections import Connections, network_of
from surefoot.server.access.watched_files import WatchedFiles

LOG = logging.getLogger(__name__)
WATCH_S = 5.0
ACCEPT_PAUSE_S = 0.1
CLOSE_S = 5.0  # for a client to take part in closing its connection


class TlsError(ValueError):
    """The certificate cannot be used."""


class Certificate:
    """A certificate's files. `context` has what they held when they were last usable."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """key: None if it stands in the certificate's file. Raises TlsError."""
        self._certificate, self._key = certificate, key
        self._files = WatchedFiles(certificate, key)
        self.context = self._read()

    async def watch(self) -> None:
        """Notice changes of the files, for ever."""
        await self._files.watch(WATCH_S, self.reload)

    def reload(self) -> None:
        """New connections get the new certificate. Files that do not belong together leave everything as it was."""
        self._files.note()
        try:
            self.context = self._read()
        except TlsError as error:
            LOG.error("the certificate stays as it was: %s", error)
        else:
            LOG.info("certificate read from %s", self._certificate)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password=_refuse_password)
        except OSError as error:  # ssl.SSLError is one
            reason = "the key does not belong to it" if "MISMATCH" in str(error) else error.strerror or str(error)
            raise TlsError(f"{self._certificate}: no certificate to serve with: {reason}") from None
        return context


def _refuse_password() -> str:
    raise TlsError("the key is encrypted: give one without a password, readable by the server alone")


class TlsServer:
    """Accepts the connections of a listening socket, as asyncio's servers do."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        certificate: Certificate,
        make: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """make: the protocol of a connection whose handshake is done."""
        self.sockets = (listener,)
        self._connections = connections
        self._certificate = certificate
        self._make = make
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left
                LOG.warning("no connection could be accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
            else:
                Handshake(sock, self._connections).begin(self._certificate.context, self._make)

    def close(self) -> None:
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting])


class Handshake:
    """A connection until its handshake is done."""

    def __init__(self, sock: socket.socket, connections: Connections) -> None:
        self.loop = asyncio.get_running_loop()
        self.network = network_of(str(sock.getpeername()[0]))
        self._socket = sock
        self._connections = connections
        self._task: asyncio.Task[None] | None = None

    def begin(self, context: ssl.SSLContext, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._socket.setblocking(False)
        self._task = self.loop.create_task(self._shake(context, make))
        self._connections.enter(self)

    def abort(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def check_time(self, now: float) -> None:
        """The loop itself ends a handshake that is late."""

    async def _shake(self, context: ssl.SSLContext, make: Callable[[], asyncio.BaseProtocol]) -> None:
        try:
            with suppress(OSError):  # whatever the client did
                await self.loop.connect_accepted_socket(
                    make, self._socket, ssl=context, ssl_handshake_timeout=self._connections.limits.head_s,
                    ssl_shutdown_timeout=CLOSE_S,
                )  # fmt: skip
        finally:
            self._connections.leave(self)
