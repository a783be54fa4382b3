"""The server that the clients share."""

from tests.server.conftest import ranking, server

__all__ = ["ranking", "server"]
