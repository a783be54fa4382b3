"""The application: routes, what wraps them, and what happens at its start and end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Scope

from surefoot import __version__
from surefoot.server.batches import Batches
from surefoot.server.batches_routes import batches_router
from surefoot.server.chat import chat_router
from surefoot.server.completions import completions_router
from surefoot.server.cors import with_cors
from surefoot.server.draining import unless_draining
from surefoot.server.embeddings import embeddings_router
from surefoot.server.errors import ApiError, of_status, of_validation
from surefoot.server.files import Files, files_router
from surefoot.server.gate import Gate
from surefoot.server.infill import infill_router
from surefoot.server.keys import KeyStore
from surefoot.server.leniency import UnknownParameters
from surefoot.server.messages import messages_router
from surefoot.server.metrics import CONTENT_TYPE
from surefoot.server.ollama import ollama_router
from surefoot.server.request_ids import MOST_PATH_CHARACTERS, RequestIds
from surefoot.server.responses import responses_router
from surefoot.server.schemas.replies import ANTHROPIC_ERRORS, OLLAMA_ERRORS, OPENAI_ERRORS
from surefoot.server.service import Service
from surefoot.server.state import StateFolder
from surefoot.server.streaming import ClientGone
from surefoot.server.tokens import tokens_router

RELOAD_S = 1.0
LOG = logging.getLogger(__name__)


def make_app(service: Service, keys: KeyStore | None, state: StateFolder | None) -> ASGIApp:
    """The whole, with the gate in front. state: None if there is no folder for files and batches."""
    files = Files(state) if state is not None else None
    batches = Batches(service, keys, state, files) if state is not None and files is not None else None
    lifespan = _lifespan(service, keys, batches)
    app = FastAPI(title="surefoot", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.include_router(messages_router(service), responses=ANTHROPIC_ERRORS)
    app.include_router(ollama_router(service), responses=OLLAMA_ERRORS)
    for router in (
        chat_router(service),
        completions_router(service),
        infill_router(service),
        responses_router(service),
        embeddings_router(service),
        tokens_router(service),
        files_router(files),
        batches_router(batches),
    ):
        app.include_router(router, responses=OPENAI_ERRORS)
    app.add_middleware(
        UnknownParameters, is_strict=service.settings.strict_parameters, count=service.metrics.ignored.inc
    )
    _add_operations(app, service, has_keys=keys is not None)
    _add_errors(app, service)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]

    def on_refusal(scope: Scope, error: ApiError) -> None:
        service.metrics.refuse(error.status)
        if error.status in (401, 403):
            route = scope["path"][:MOST_PATH_CHARACTERS]
            service.audit.write(route=route, client=(scope.get("client") or ("", 0))[0], end=f"{error.status}")

    welcome = unless_draining(app, lambda: service.is_draining, service.metrics.refuse)
    gated = with_cors(Gate(welcome, service.settings, keys, on_refusal), service.settings.origins)
    return RequestIds(gated, service.access.write)


def _schema(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own, without the status that it gives invalid requests: here they answer 400."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for operations in made["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = made
    return app.openapi_schema


def _lifespan(service: Service, keys: KeyStore | None, batches: Batches | None):  # type: ignore[no-untyped-def]  # noqa: ANN202
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        service.llm.start()
        await service.learn_public_prefixes()
        watching = asyncio.create_task(_reload_keys(keys)) if keys is not None else None
        if batches is not None:
            batches.start()
        yield
        if batches is not None:
            await batches.stop()
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        await service.llm.stop()
        _close_books(service)
        service.audit.close()
        service.access.close()

    return live


def _close_books(service: Service) -> None:
    """Said in the log, so that a leak does not go unnoticed."""
    try:
        service.llm.audit()
    except AssertionError:
        LOG.exception("the books do not balance: please report this")
    else:
        LOG.info("ended: all memory for keys and values was given back")


async def _reload_keys(keys: KeyStore) -> None:
    while True:
        await asyncio.sleep(RELOAD_S)
        keys.reload_if_changed()


def _add_operations(app: FastAPI, service: Service, *, has_keys: bool) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"description": "Draining, or stuck"}})
    async def ready() -> Response:
        """Requests are welcome: not draining, and the engine moves."""
        if service.is_draining:
            return JSONResponse({"status": "draining", "requests": service.num_requests}, 503)
        if not service.llm.is_alive(service.settings.patience_s):
            return JSONResponse({"status": "stuck"}, 503)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(http: HttpRequest) -> Response:
        """Of all users: with keys, only for those whose key says `admin`."""
        if has_keys and not http.state.caller.is_admin:
            raise ApiError(403, "these figures are of all users: ask with an admin key (surefoot keys add --admin)")
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI, service: Service) -> None:
    def answer(http: HttpRequest, error: ApiError) -> Response:
        service.metrics.refuse(error.status)
        return JSONResponse(error.body_for(http.url.path), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def on_api_error(http: HttpRequest, error: ApiError) -> Response:
        return answer(http, error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(http: HttpRequest, error: RequestValidationError) -> Response:
        return answer(http, of_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def on_http_error(http: HttpRequest, error: HTTPException) -> Response:
        if isinstance(error.__cause__, ApiError):  # FastAPI wraps what reading the body raises
            return answer(http, error.__cause__)
        if error.status_code == 400:
            return answer(http, ApiError(400, "the body is not JSON: send one JSON object", code="invalid_json"))
        return answer(http, of_status(error.status_code))

    @app.exception_handler(ClientGone)
    async def on_gone(_: HttpRequest, __: ClientGone) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def on_failure(http: HttpRequest, error: Exception) -> Response:
        LOG.error("a request failed", exc_info=error)
        return answer(http, ApiError(500, "the server failed on this request: see its log"))
