"""A server that is about to end: it still answers, and sends new requests elsewhere."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from surefoot.server.errors import ApiError
from surefoot.server.gate import OPEN_ROUTES, send_error

WATCHED = OPEN_ROUTES | {"/metrics"}


def shutting_down() -> ApiError:
    return ApiError(503, "the server is shutting down: try another", headers={"Retry-After": "10"})


def unless_draining(app: ASGIApp, is_draining: Callable[[], bool], on_refusal: Callable[[int], None]) -> ASGIApp:
    """The application; while the server drains, only the routes that tell how it is."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_draining() and scope["path"] not in WATCHED:
            on_refusal(503)
            await send_error(scope, send, shutting_down())
        else:
            await app(scope, receive, send)

    return serve
