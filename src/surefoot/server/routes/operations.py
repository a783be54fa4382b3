"""/health, /ready and /metrics, for operators."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from surefoot.server.access.gate import check_admin
from surefoot.server.metrics import CONTENT_TYPE
from surefoot.server.service import Service


def operations_router(service: Service, *, has_keys: bool) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/ready", responses={503: {"description": "Draining, or stuck"}})
    async def ready() -> Response:
        """The server takes requests: it does not drain, and the engine is not stuck."""
        if service.is_draining:
            return JSONResponse({"status": "draining", "requests": service.num_requests}, 503)
        if not service.llm.is_alive(service.settings.patience_s):
            return JSONResponse({"status": "stuck"}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics(http: HttpRequest) -> Response:
        """Figures of all users. If the server has keys, only admin keys may read them."""
        check_admin(http, has_keys, "the metrics cover all users")
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return router
