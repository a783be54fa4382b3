"""/admin/models: the models with their sizes and states, and to load or unload one, for admins."""

from typing import Protocol

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot import machine
from surefoot.server.access.gate import check_admin
from surefoot.server.access.line_log import LineLog
from surefoot.server.access.shares import Caller
from surefoot.server.bodies import unless_gone
from surefoot.server.errors import ApiError
from surefoot.server.schemas.managed_models import ChosenModel, ManagedModel, ManagedModels
from surefoot.server.service import Service

ROUTE = "/admin/models"


class ModelManager(Protocol):
    """Its methods raise ApiError for a model that is not there, or where the models do not change."""

    def managed(self) -> ManagedModels: ...

    async def load(self, name: str, caller: Caller) -> None:
        """Wait until the model is loaded."""

    def unload(self, name: str) -> None:
        """Begin to unload the model."""


class FixedModel:
    """The model of a server of one: it is loaded as long as the server runs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def managed(self) -> ManagedModels:
        service = self._service
        model = ManagedModel.of(service.shown, len(service.runs), machine.used_bytes())
        return ManagedModels(data=[model], limit_bytes=None)

    async def load(self, name: str, caller: Caller) -> None:
        self.unload(name)

    def unload(self, name: str) -> None:
        self._service.check_model(name)
        raise ApiError(
            409, "this server has one model, the one that it was started with: start `surefoot serve` with several",
            code="fixed_model",
        )  # fmt: skip


def managed_models_router(manager: ModelManager, audit: LineLog, *, has_keys: bool) -> APIRouter:
    router = APIRouter()

    def check(http: HttpRequest) -> None:
        check_admin(http, has_keys, "models are for admins")

    @router.get(ROUTE)
    async def list_models(http: HttpRequest) -> ManagedModels:
        """All models, loaded or not, also those that the admin's own requests may not use."""
        check(http)
        return manager.managed()

    @router.post(ROUTE + "/load")
    async def load_model(http: HttpRequest, chosen: ChosenModel) -> ManagedModels:
        """Answers when the model is loaded. It waits as a request for the model would, and may unload others."""
        check(http)
        await unless_gone(http.receive, manager.load(chosen.model, http.state.caller))
        note(http, chosen.model, "model loaded")
        return manager.managed()

    @router.post(ROUTE + "/unload")
    async def unload_model(http: HttpRequest, chosen: ChosenModel) -> ManagedModels:
        """Refused while the model answers requests, and if it is pinned. The next request for it loads it again."""
        check(http)
        manager.unload(chosen.model)
        note(http, chosen.model, "model unloaded")
        return manager.managed()

    def note(http: HttpRequest, name: str, end: str) -> None:
        caller = http.state.caller
        audit.write(route=ROUTE, user=caller.user, key=caller.key, end=end, about=name)

    return router
