"""The application: routes, middleware, error handlers, start and end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot import __version__
from surefoot.server.access.front_gate import FrontGate
from surefoot.server.access.gate import unless_draining
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import RequestIds
from surefoot.server.answer.public_prefixes import learn_public_prefixes
from surefoot.server.batch.batches import Batches
from surefoot.server.batch.files import Files
from surefoot.server.batch.lines import AnswerLine, answer_line
from surefoot.server.batch.state import StateFolder
from surefoot.server.bodies import ClientGone
from surefoot.server.channel import FrontLink
from surefoot.server.door import guarded
from surefoot.server.errors import ApiError, of_status, of_validation
from surefoot.server.overview.history import History
from surefoot.server.routes.batches import batches_router
from surefoot.server.routes.cache import cache_router
from surefoot.server.routes.files import files_router
from surefoot.server.routes.infill import infill_router
from surefoot.server.routes.keys import keys_router
from surefoot.server.routes.managed_models import FixedModel, managed_models_router
from surefoot.server.routes.messages import messages_router
from surefoot.server.routes.models import OnlyModel, models_router, ollama_models_router
from surefoot.server.routes.ollama import ollama_router
from surefoot.server.routes.openai import openai_router
from surefoot.server.routes.operations import operations_router
from surefoot.server.routes.overview import overview_router
from surefoot.server.routes.page import page_router
from surefoot.server.routes.responses import responses_router
from surefoot.server.routes.tokens import tokens_router
from surefoot.server.schemas.dialects import noting_unknown
from surefoot.server.schemas.replies import ANTHROPIC_ERRORS, OLLAMA_ERRORS, OPENAI_ERRORS
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

LOG = logging.getLogger(__name__)
HISTORY = "history.json"  # in the folder of files and batches
# Puts something in front of the gated application. Requests that it sends on may have a `Forwarded` in their state.
InFront = Callable[[ASGIApp, Service, KeyStore | None], ASGIApp]


def make_app(
    service: Service,
    keys: KeyStore | None,
    state: StateFolder | None,
    link: FrontLink | None = None,
    in_front: InFront | None = None,
) -> ASGIApp:
    """The whole application with the gate in front. state: None if there is no folder for files and batches. link: to
    the front process, if there is one; it has checked the requests that it sends. in_front: of the gate."""
    num_slots = max(1, service.llm.max_running // 2)
    files, batches = open_batches(partial(answer_line, service), keys, state, num_slots, service.settings)
    if state is not None:
        service.history = History(state.path / HISTORY)
    lifespan = _lifespan(service, keys, batches)
    app = FastAPI(title="surefoot", version=__version__, openapi_url=None, lifespan=lifespan)
    app.state.body_work = service.body_work
    app.include_router(messages_router(service), responses=ANTHROPIC_ERRORS, tags=["Anthropic"])
    lists = OnlyModel(service)
    for router in (ollama_router(service), ollama_models_router(lists)):
        app.include_router(router, responses=OLLAMA_ERRORS, tags=["Ollama"])
    for router in (
        openai_router(service),
        infill_router(service),
        responses_router(service),
        models_router(lists),
        tokens_router(service),
        files_router(files),
        batches_router(batches),
    ):
        app.include_router(router, responses=OPENAI_ERRORS, tags=["OpenAI"])
    app.add_middleware(
        UnknownParameterWarning, is_strict=service.settings.strict_parameters, count=service.metrics.ignored.inc
    )
    app.include_router(page_router())
    operations = operations_router(service.find_problem, service.metrics.read, has_keys=keys is not None)
    app.include_router(operations, tags=["Operations"])
    app.include_router(overview_router(service, has_keys=keys is not None))
    managed = managed_models_router(FixedModel(service), service.audit, has_keys=keys is not None)
    for router in (keys_router(keys, service.audit), cache_router(service, keys), managed):
        app.include_router(router, responses=OPENAI_ERRORS, tags=["Operations"])
    add_errors(app, service.metrics.refuse)

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> JSONResponse:  # not async: the schema takes a while to make, so it is made on another thread
        return JSONResponse(_schema(app))

    refuse = service.metrics.refuse
    if link is not None:
        welcome = unless_draining(app, lambda: service.is_draining, refuse)
        return RequestIds(FrontGate(welcome, link.charge), service.access.write)
    gated = guarded(app, service.settings, keys, service.audit, lambda: service.is_draining, refuse)
    return RequestIds(gated if in_front is None else in_front(gated, service, keys), service.access.write)


def open_batches(
    answer: AnswerLine, keys: KeyStore | None, state: StateFolder | None, num_slots: int, settings: ServerSettings
) -> tuple[Files | None, Batches | None]:
    """None where there is no folder for them. num_slots: answers in flight."""
    if state is None:
        return None, None
    files = Files(state)
    return files, Batches(answer, keys, state, files, num_slots, settings.disk_patience_s)


def _schema(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own, without the status that it gives invalid requests: here they answer 400."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = schema
    return app.openapi_schema


def _lifespan(service: Service, keys: KeyStore | None, batches: Batches | None):  # type: ignore[no-untyped-def]  # noqa: ANN202
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        service.llm.start()
        await learn_public_prefixes(service)
        async with keys_and_batches(keys, batches), beside(service.history.record(service.samples)):
            yield
        await asyncio.to_thread(service.history.save)
        await service.llm.stop()
        _log_leaks(service)
        if service.tracer is not None:
            await asyncio.to_thread(service.tracer.close)
        service.audit.close()
        service.access.close()

    return live


@asynccontextmanager
async def keys_and_batches(keys: KeyStore | None, batches: Batches | None) -> AsyncIterator[None]:
    """Batches run, and changes of the keys' file are noticed."""
    async with AsyncExitStack() as stack:
        if keys is not None:
            await stack.enter_async_context(beside(keys.watch()))
        if batches is not None:
            batches.start()
            stack.push_async_callback(batches.stop)
        yield


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The work goes on until the block ends."""
    task = asyncio.create_task(work)
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _log_leaks(service: Service) -> None:
    """Log whether all memory for keys and values was returned, so that a leak is noticed."""
    try:
        service.llm.audit()
    except AssertionError:
        LOG.exception("memory for keys and values was not all freed: please report this")
    else:
        LOG.info("ended: all memory for keys and values was freed")


def add_errors(app: FastAPI, on_refusal: Callable[[int], None]) -> None:
    def answer(http: HttpRequest, error: ApiError) -> Response:
        on_refusal(error.status)
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


class UnknownParameterWarning:
    """Wraps all routes. is_strict: unknown parameters are refused. count: adds to the metric."""

    def __init__(self, app: ASGIApp, is_strict: bool, count: Callable[[int], None]) -> None:
        self._app = app
        self._is_strict = is_strict
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with noting_unknown(self._is_strict) as unknown:

            async def send_with_warning(message: Message) -> None:
                if message["type"] == "http.response.start" and unknown.count:
                    self._count(unknown.count)
                    headers = [*message.get("headers", ()), (b"warning", unknown.warning.encode("ascii"))]
                    message = {**message, "headers": headers}
                await send(message)

            await self._app(scope, receive, send_with_warning)
