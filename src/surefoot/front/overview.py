"""/overview of one of several models: its own process's events, passed on."""

from contextlib import suppress

from starlette.datastructures import QueryParams
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from surefoot.front.catalog import Catalog
from surefoot.front.model_process import ModelProcess
from surefoot.front.pool import ModelPool, lost
from surefoot.front.proxy import ProxiedRequest, UpstreamLost, forward
from surefoot.front.requests import REPLY_HEADERS, RETRY_S, trusted_request
from surefoot.server.access.gate import check_admin
from surefoot.server.bodies import ClientGone, read_body, unless_gone
from surefoot.server.errors import ApiError


class ModelOverview:
    """An ASGI application. Whoever watches a model does not keep it in memory: the events end when it is unloaded."""

    def __init__(self, catalog: Catalog, pool: ModelPool, *, has_keys: bool) -> None:
        self._catalog = catalog
        self._pool = pool
        self._has_keys = has_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(HttpRequest(scope), self._has_keys, "the overview covers all users")
        asked = QueryParams(scope["query_string"]).get("model")
        name = self._catalog.find(asked, scope["state"]["caller"]).name
        process = self._pool.processes.get(name)
        if process is None:
            raise ApiError(409, f"the model {name!r} is not loaded", code="model_not_loaded")
        request = trusted_request(scope, await read_body(receive))
        with suppress(ClientGone):
            await unless_gone(receive, self._pass_on(name, process, request, send))

    async def _pass_on(self, name: str, process: ModelProcess, request: ProxiedRequest, send: Send) -> None:
        try:
            await forward(process.client, request, send, dropping=REPLY_HEADERS)
        except UpstreamLost as error:
            if error.reply is None:
                raise lost(name, "has ended", RETRY_S) from error
            await send({"type": "http.response.body", "body": b""})
