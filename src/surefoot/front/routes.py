"""Routes that the front process answers itself: which models there are, and how it is."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from surefoot.front.catalog import Catalog
from surefoot.front.config import ModelEntry
from surefoot.front.metrics import FrontMetrics
from surefoot.front.pool import ModelPool
from surefoot.front.resident import ModelState
from surefoot.server.access.gate import check_admin
from surefoot.server.access.shares import Caller
from surefoot.server.metrics import CONTENT_TYPE
from surefoot.server.routes.ollama import VERSION
from surefoot.server.schemas.ollama import (
    LATEST,
    Details,
    ListedModel,
    ModelsReply,
    RunningModel,
    RunningReply,
    VersionReply,
)
from surefoot.server.schemas.tokens import ModelCard, ModelList


@dataclass(frozen=True)
class HeaderFacts:
    """What is known of a model from its file's header."""

    family: str
    weight_bytes: int
    max_context: int
    need_bytes: int  # of its process


class ResidentCard(ModelCard):
    """A model among several."""

    is_pinned: bool
    num_waiting: int  # requests that wait for its load
    load_seconds: float  # expected of its next load
    memory_bytes: int  # planned for its process


class ResidentList(ModelList):
    data: list[ResidentCard]  # type: ignore[assignment]


class ModelLists:
    """The models that a caller may use, in the forms of the APIs."""

    def __init__(self, catalog: Catalog, pool: ModelPool, facts: Mapping[str, HeaderFacts]) -> None:
        self._catalog = catalog
        self._pool = pool
        self._facts = facts
        self._created = int(time.time())

    def cards(self, caller: Caller) -> list[ResidentCard]:
        return [self._card(entry, name) for entry in self._catalog.of(caller) for name in entry.names]

    def card(self, name: str, caller: Caller) -> ResidentCard:
        return self._card(self._catalog.find(name, caller), name)

    def _card(self, entry: ModelEntry, name: str) -> ResidentCard:
        resident = self._pool.policy.residents[entry.name]
        return ResidentCard(
            id=name, created=self._created, max_model_len=self._facts[entry.name].max_context,
            state=resident.state.value, is_pinned=entry.is_pinned, num_waiting=len(resident.waiting),
            load_seconds=round(resident.load_s, 3), memory_bytes=resident.need_bytes,
        )  # fmt: skip

    def listed(self, caller: Caller) -> list[ListedModel]:
        return [self._listed(entry) for entry in self._catalog.of(caller)]

    def running(self, caller: Caller) -> list[RunningModel]:
        states = self._pool.policy.states
        return [
            RunningModel(**self._listed(entry).model_dump(), context_length=self._facts[entry.name].max_context)
            for entry in self._catalog.of(caller)
            if states[entry.name] in (ModelState.LOADED, ModelState.DRAINING)
        ]

    def _listed(self, entry: ModelEntry) -> ListedModel:
        facts, name = self._facts[entry.name], entry.name if ":" in entry.name else f"{entry.name}{LATEST}"
        details = Details(
            format="gguf", family=facts.family, families=[facts.family], parameter_size="", quantization_level=""
        )
        modified = datetime.fromtimestamp(self._created, UTC).isoformat().replace("+00:00", "Z")
        digest = hashlib.sha256(f"{entry.name} {entry.file}".encode()).hexdigest()
        return ListedModel(
            name=name, model=name, modified_at=modified, size=facts.weight_bytes, digest=digest, details=details
        )


def lists_router(lists: ModelLists) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def models(http: HttpRequest) -> ResidentList:
        return ResidentList(data=lists.cards(http.state.caller))

    @router.get("/v1/models/{model:path}")
    async def model(model: str, http: HttpRequest) -> ResidentCard:
        return lists.card(model, http.state.caller)

    @router.get("/api/tags")
    async def tags(http: HttpRequest) -> ModelsReply:
        return ModelsReply(models=lists.listed(http.state.caller))

    @router.get("/api/ps")
    async def running(http: HttpRequest) -> RunningReply:
        return RunningReply(models=lists.running(http.state.caller))

    @router.get("/api/version")
    async def version() -> VersionReply:
        return VersionReply(version=VERSION)

    return router


def front_operations_router(metrics: FrontMetrics, pool: ModelPool, *, has_keys: bool) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/ready", responses={503: {"description": "Draining, or pinned models are not loaded"}})
    async def ready() -> Response:
        residents = pool.policy.residents.values()
        missing = [r.traits.name for r in residents if r.traits.is_pinned and r.state is not ModelState.LOADED]
        if pool.is_draining or missing:
            return JSONResponse({"status": "draining" if pool.is_draining else "loading", "missing": missing}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def page(http: HttpRequest) -> Response:
        """Figures of all users. If the server has keys, only admin keys may read them."""
        check_admin(http, has_keys, "the metrics cover all users")
        return Response(await metrics.text(), media_type=CONTENT_TYPE)

    return router
