"""/health, /ready and /metrics, for operators."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from surefoot.server.access.gate import check_admin
from surefoot.server.metrics import CONTENT_TYPE

Problem = dict[str, Any] | None


def operations_router(
    find_problem: Callable[[], Problem], read_metrics: Callable[[], Awaitable[bytes]], *, has_keys: bool
) -> APIRouter:
    """find_problem: why the server takes no requests now, with a status; None: it does."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/ready", responses={503: {"description": "Draining, stuck, or still loading pinned models"}})
    async def ready() -> Response:
        """The server takes requests: it does not drain, and the engine is not stuck."""
        problem = find_problem()
        return JSONResponse({"status": "ready"} if problem is None else problem, 200 if problem is None else 503)

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics(http: HttpRequest) -> Response:
        """Figures of all users. If the server has keys, only admin keys may read them."""
        check_admin(http, has_keys, "the metrics cover all users")
        return Response(await read_metrics(), media_type=CONTENT_TYPE)

    return router
