"""Bodies of requests: JSON is bounded before it is parsed, and read on another thread if it is large. And clients that
disconnect before their body was read or their answer was made.

A parser holds the GIL, so a thread alone does not keep the event loop free: the bounds of `core/json_bounds.py` do."""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive

from surefoot.core.json_bounds import json_excess
from surefoot.server.access.shares import Turns, asking_user
from surefoot.server.errors import bad_request, of_validation, too_large

# Headers about one connection, not about the message.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)

T = TypeVar("T")
MOST_BYTES_ON_LOOP = 64 << 10
Model = TypeVar("Model", bound=BaseModel)


class ClientGone(Exception):
    """The client disconnected before its answer was ready."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of the work. Raises ClientGone if the client disconnects first. The request's body must have been
    read."""
    working: asyncio.Future[T] = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        both: set[asyncio.Future[Any]] = {working, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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


def check_bounds(body: bytes) -> None:
    """Raises ApiError if the body, which should be JSON, holds more than a server parses."""
    excess = json_excess(body) if len(body) > MOST_BYTES_ON_LOOP else None
    if excess is not None:
        raise bad_request(f"the body has {excess}: send less", code="body_too_complex")


def parse_json(body: bytes) -> Any:
    """Raises ApiError if the body is not JSON in UTF-8, or holds more than a server parses."""
    check_bounds(body)
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
