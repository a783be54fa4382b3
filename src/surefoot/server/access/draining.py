"""While the server drains, running requests go on and new ones are refused with 503."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from surefoot.server.access.gate import send_error
from surefoot.server.access.open_routes import PROBES
from surefoot.server.errors import ApiError

WATCHED = PROBES | {"/metrics"}


def shutting_down() -> ApiError:
    """A client's next connection may reach the next process, so this one is closed."""
    return ApiError(
        503, "the server is shutting down: try another", headers={"Retry-After": "10", "Connection": "close"}
    )


def unless_draining(app: ASGIApp, is_draining: Callable[[], bool], on_refusal: Callable[[int], None]) -> ASGIApp:
    """The application, reduced to /health, /ready and /metrics while the server drains."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_draining() and scope["path"] not in WATCHED:
            on_refusal(503)
            await send_error(scope, send, shutting_down())
        else:
            await app(scope, receive, send)

    return serve
