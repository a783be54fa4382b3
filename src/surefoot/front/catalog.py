"""The models and routes by the names that clients use, and who may use which."""

from collections.abc import Sequence

from starlette.datastructures import Headers

from surefoot.front.config import ModelEntry
from surefoot.front.routing import AskedFor, Route, RoutePlan
from surefoot.server.access.shares import Caller
from surefoot.server.errors import ApiError
from surefoot.server.schemas.ollama import LATEST


class Catalog:
    """any_name: a name that no model has means the first one."""

    def __init__(self, models: Sequence[ModelEntry], any_name: bool = False, routes: Sequence[Route] = ()) -> None:
        self.models = tuple(models)
        self._routes = {route.name: route for route in routes}
        self._by_name = {name: entry for entry in models for name in entry.names}
        self._any_name = any_name

    def of(self, caller: Caller) -> list[ModelEntry]:
        return [entry for entry in self.models if entry.admits(caller.user, caller.key)]

    def routes_of(self, caller: Caller) -> list[Route]:
        """Those of whose models here the caller may use each. Their upstreams are another matter."""
        own = {entry.name for entry in self.of(caller)}
        return [route for route in self._routes.values() if route.targets <= own]

    def plan(self, path: str, asked: AskedFor, caller: Caller, headers: Headers) -> RoutePlan:
        """The models to be asked."""
        route = self.find_route(asked.model, caller)
        if route is not None:
            return route.plan(path, asked, caller, headers)
        return RoutePlan("", (self.find(asked.model, caller).name,))

    def find_route(self, name: str | None, caller: Caller) -> Route | None:
        """The route that a request names; None: it names none, or one that the caller may not use."""
        route = self._routes.get(name or "") or self._routes.get((name or "").removesuffix(LATEST))
        return route if route in self.routes_of(caller) else None

    def find(self, name: str | None, caller: Caller) -> ModelEntry:
        """The model that a request names; without a name, the caller's first. A model that the caller may not use is
        not there. A route is shown as its first model."""
        own = self.of(caller)
        if (route := self.find_route(name, caller)) is not None:
            name = route.first
        entry = self._by_name.get(name or "") or self._by_name.get((name or "").removesuffix(LATEST))
        if entry in own:
            return entry
        if own and (name is None or (entry is None and self._any_name)):
            return own[0]
        names = [entry.name for entry in own] + [route.name for route in self.routes_of(caller)]
        known = ", ".join(map(repr, names)) or "none: your key may use no model"
        raise ApiError(
            404, f"there is no model {(name or '')[:80]!r} here: use one of {known}", param="model",
            code="model_not_found",
        )  # fmt: skip
