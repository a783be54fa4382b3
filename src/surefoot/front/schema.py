"""/openapi.json of several models: it is the same for all, so one process is asked, once."""

import httpx2
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.front.catalog import Catalog
from surefoot.front.pool import ModelPool, lost
from surefoot.front.requests import RETRY_S, trusted_headers
from surefoot.server.access.keys import Caller
from surefoot.server.errors import ApiError

SCHEMA = "/openapi.json"


class ApiSchema:
    """An ASGI application. Only if no model of the caller's is loaded is the first one loaded for it."""

    def __init__(self, catalog: Catalog, pool: ModelPool) -> None:
        self._catalog = catalog
        self._pool = pool
        self._schema: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._schema is None:
            self._schema = await self._ask(HttpRequest(scope).state.caller)
        await Response(self._schema, media_type="application/json")(scope, receive, send)

    async def _ask(self, caller: Caller) -> bytes:
        first = self._catalog.find(None, caller)
        loaded = (entry for entry in self._catalog.of(caller) if entry.name in self._pool.processes)
        name = next(loaded, first).name
        try:
            async with self._pool.using(name, caller.user) as process:
                reply = await process.client.get(SCHEMA, headers=trusted_headers(caller))
        except httpx2.TransportError as error:
            raise lost(name, "has ended while it answered", RETRY_S) from error
        if reply.status_code != 200:
            raise ApiError(503, "the schema cannot be read now", headers={"Retry-After": "1"})
        return reply.content
