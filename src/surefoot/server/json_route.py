"""Routes that take JSON."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.server.access.shares import asking_user
from surefoot.server.json_bodies import BodyWork, parse_json, validate


class JsonRoute(APIRoute):
    """A route whose JSON body is bounded, parsed and validated here, before FastAPI would do it on the event loop.

    Every route with a JSON body is of this class. `app.state.body_work` does the work.
    """

    def get_route_handler(self) -> Callable[[HttpRequest], Coroutine[Any, Any, Response]]:
        handle, field = super().get_route_handler(), self.body_field
        kind = field.field_info.annotation if field is not None else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return handle
        model = kind

        async def handle_json(http: HttpRequest) -> Response:
            return await handle(JsonRequest(http, model))

        return handle_json


class JsonRequest(HttpRequest):
    """A request whose `json()` is the validated body, which FastAPI then takes as it is. kind: of the body."""

    def __init__(self, http: HttpRequest, kind: type[BaseModel]) -> None:
        super().__init__(http.scope, http.receive, http._send)
        self._kind = kind

    async def json(self) -> BaseModel:
        body = await self.body()
        state = self.scope["state"]
        state["num_body_bytes"] = len(body)
        asking_user.set(state["caller"].user)
        work: BodyWork = self.app.state.body_work
        return await work.run(len(body), partial(_read, self._kind, body))


def _read(kind: type[BaseModel], body: bytes) -> BaseModel:
    return validate(kind, parse_json(body))
