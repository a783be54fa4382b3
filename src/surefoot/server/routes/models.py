"""Which models there are, in the forms of OpenAI's and Ollama's APIs. A server of one model and a front of several have
these routes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.server.access.shares import Caller
from surefoot.server.schemas.ollama import ModelsReply, RunningReply, ShownModel, VersionReply
from surefoot.server.schemas.tokens import ModelCard, ModelList
from surefoot.server.service import Service

VERSION = "0.12.6"  # the version of Ollama whose API this is; clients choose features by it


class ModelLists(Protocol):
    def of(self, caller: Caller) -> Sequence[ShownModel]:
        """The models that the caller may use."""

    def find(self, name: str, caller: Caller) -> ShownModel:
        """Raises ApiError if the caller may use no model of this name."""


@dataclass(frozen=True)
class OnlyModel:
    """The model of a server of one."""

    service: Service

    def of(self, caller: Caller) -> Sequence[ShownModel]:
        return [self.service.shown]

    def find(self, name: str, caller: Caller) -> ShownModel:
        self.service.check_model(name)
        return self.service.shown


def models_router(lists: ModelLists) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def models(http: HttpRequest) -> ModelList:
        shown = lists.of(http.state.caller)
        return ModelList(data=[model.card(name) for model in shown for name in model.names])

    @router.get("/v1/models/{model:path}")
    async def model(model: str, http: HttpRequest) -> ModelCard:
        return lists.find(model, http.state.caller).card(model)

    return router


def ollama_models_router(lists: ModelLists) -> APIRouter:
    router = APIRouter()

    @router.get("/api/tags")
    async def tags(http: HttpRequest) -> ModelsReply:
        return ModelsReply(models=[model.listed() for model in lists.of(http.state.caller)])

    @router.get("/api/ps")
    async def running(http: HttpRequest) -> RunningReply:
        return RunningReply(models=[model.running() for model in lists.of(http.state.caller) if model.is_loaded])

    @router.get("/api/version")
    async def version() -> VersionReply:
        return VersionReply(version=VERSION)

    return router
