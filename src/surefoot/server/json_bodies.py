"""JSON bodies: bounded before they are parsed, and read on another thread if they are large. Routes that take them.

A parser holds the GIL, so a thread alone does not keep the event loop free: the bounds of `core/json_bounds.py` do."""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.core.json_bounds import json_excess
from surefoot.server.access.shares import Turns, asking_user
from surefoot.server.errors import bad_request, of_validation

MOST_BYTES_ON_LOOP = 64 << 10
T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class BodyWork:
    """Runs work whose time grows with a body: beyond 64 KiB on another thread, users in turns."""

    def __init__(self) -> None:
        self._turns = Turns(1)

    async def run(self, num_bytes: int, work: Callable[[], T]) -> T:
        """What the work returns. num_bytes: length of the body."""
        if num_bytes <= MOST_BYTES_ON_LOOP:
            return work()
        async with self._turns.turn():
            return await asyncio.to_thread(work)


def parse_json(body: bytes) -> Any:
    """Raises ApiError if the body is not JSON in UTF-8, or holds more than a server parses."""
    excess = json_excess(body) if len(body) > MOST_BYTES_ON_LOOP else None
    if excess is not None:
        raise bad_request(f"the body has {excess}: send less", code="body_too_complex")
    try:
        return json.loads(body.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise bad_request("the body is not JSON: send one JSON object", code="invalid_json") from error


def validate(kind: type[Model], value: Any) -> Model:
    """Raises ApiError, for the first of the errors."""
    return translated(lambda: kind.model_validate(value))


def translated(make: Callable[[], T]) -> T:
    """What `make` makes of a client's request. Raises ApiError in place of pydantic's error."""
    try:
        return make()
    except ValidationError as error:
        raise of_validation(error.errors(include_url=False, include_input=False)) from None


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
