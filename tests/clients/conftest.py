"""The server that the clients share."""

from tests.server.conftest import server

__all__ = ["server"]
