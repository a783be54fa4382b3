"""The application of the front process: gate, keys and limits, files and batches; all else goes to the models."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from surefoot import __version__
from surefoot.front.catalog import Catalog
from surefoot.front.metrics import FrontMetrics
from surefoot.front.pool import ModelPool
from surefoot.front.requests import SCHEMA, ModelOverview, ModelRequests, Outward, api_schema
from surefoot.front.routes import PooledManager, PooledModels, find_problem
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import RequestIds, RequestLogs
from surefoot.server.access.shares import Admission
from surefoot.server.app import add_errors, keys_and_batches, open_batches
from surefoot.server.batch.batches import Batches
from surefoot.server.batch.state import StateFolder
from surefoot.server.door import guarded
from surefoot.server.routes.batches import batches_router
from surefoot.server.routes.files import files_router
from surefoot.server.routes.keys import keys_router
from surefoot.server.routes.managed_models import managed_models_router
from surefoot.server.routes.models import models_router, ollama_models_router
from surefoot.server.routes.operations import operations_router
from surefoot.server.routes.page import page_router
from surefoot.server.settings import ServerSettings

NUM_BATCH_SLOTS = 16  # answers of batches in flight, over all models
# Every POST route of a server of one model that names a model. A test compares them with that server's.
MODEL_ROUTES = (
    "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
    "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank", "/tokenize", "/detokenize", "/infill",
    "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
)  # fmt: skip


@dataclass(frozen=True)
class FrontParts:
    """What the application is made of."""

    settings: ServerSettings
    catalog: Catalog
    pool: ModelPool
    admission: Admission
    metrics: FrontMetrics
    lists: PooledModels
    logs: RequestLogs
    outward: Outward | None = None  # None: there is no upstream


def make_front_app(parts: FrontParts, keys: KeyStore | None, state: StateFolder | None) -> ASGIApp:
    """state: None if there is no folder for files and batches."""
    requests = ModelRequests(parts.catalog, parts.pool, parts.admission, parts.metrics.count_routed, parts.outward)
    files, batches = open_batches(requests.answer_line, keys, state, NUM_BATCH_SLOTS, parts.settings)
    app = FastAPI(title="surefoot", version=__version__, openapi_url=None, lifespan=_lifespan(parts, keys, batches))
    app.state.body_work = requests.body_work
    for router in (
        files_router(files),
        batches_router(batches),
        models_router(parts.lists),
        ollama_models_router(parts.lists),
        page_router(),
        operations_router(partial(find_problem, parts.pool), parts.metrics.text, has_keys=keys is not None),
        keys_router(keys, parts.logs.audit),
        managed_models_router(PooledManager(parts.lists, parts.admission), parts.logs.audit, has_keys=keys is not None),
    ):
        app.include_router(router)
    overview = ModelOverview(parts.catalog, parts.pool, has_keys=keys is not None)
    app.router.routes += [
        *(Route(path, requests, methods=["POST"]) for path in MODEL_ROUTES),
        *(Route(path, overview, methods=["GET"]) for path in ("/overview", "/overview/history")),
        Route("/admin/cache", overview, methods=["GET", "DELETE"]),
        Route(SCHEMA, api_schema(parts.catalog, parts.pool), methods=["GET"]),
    ]
    add_errors(app, parts.metrics.refuse)

    is_draining, refuse = (lambda: parts.pool.is_draining), parts.metrics.refuse
    return RequestIds(
        guarded(app, parts.settings, keys, parts.logs.audit, is_draining, refuse), parts.logs.access.write
    )


def _lifespan(
    parts: FrontParts, keys: KeyStore | None, batches: Batches | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        parts.pool.start()
        outward = parts.outward.running() if parts.outward is not None else nullcontext()
        async with outward, keys_and_batches(keys, batches):
            yield
        await parts.pool.stop()
        parts.logs.close()

    return live
