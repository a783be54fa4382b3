"""What the front process tells of its models, and whether it is ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surefoot.front.catalog import Catalog
from surefoot.front.config import ModelEntry
from surefoot.front.pool import ModelPool
from surefoot.front.resident import ModelState
from surefoot.server.access.shares import Admission, Caller
from surefoot.server.errors import ApiError
from surefoot.server.schemas.managed_models import ManagedModel, ManagedModels
from surefoot.server.schemas.ollama import ShownModel


@dataclass(frozen=True)
class PooledModels:
    """The models that a caller may use."""

    catalog: Catalog
    pool: ModelPool
    headers: Mapping[str, ShownModel]  # what is known of each from its file's header

    def of(self, caller: Caller) -> Sequence[ShownModel]:
        models = [self._shown(entry) for entry in self.catalog.of(caller)]
        return models + [self.find(route.name, caller) for route in self.catalog.routes_of(caller)]

    def find(self, name: str, caller: Caller) -> ShownModel:
        """A route is shown by its own name, as its first model."""
        shown = self._shown(self.catalog.find(name, caller))
        route = self.catalog.find_route(name, caller)
        return shown if route is None else replace(shown, names=[route.name])

    def _shown(self, entry: ModelEntry) -> ShownModel:
        resident = self.pool.policy.residents[entry.name]
        more = {
            "state": resident.state.value,
            "is_pinned": entry.is_pinned,
            "num_waiting": len(resident.waiting),  # requests that wait for its load
            "load_seconds": round(resident.load_s, 3),  # expected of its next load
            "memory_bytes": resident.need_bytes,  # planned for its process
        }
        is_loaded = resident.state in (ModelState.LOADED, ModelState.DRAINING)
        return replace(self.headers[entry.name], is_loaded=is_loaded, more=more)


@dataclass(frozen=True)
class PooledManager:
    """All models, for admins."""

    lists: PooledModels
    admission: Admission

    def managed(self) -> ManagedModels:
        pool, headers = self.lists.pool, self.lists.headers
        models = [
            ManagedModel.of(
                headers[name], resident.num_busy, resident.need_bytes, resident.state.value, resident.traits.is_pinned
            )
            for name, resident in pool.policy.residents.items()
        ]
        return ManagedModels(data=models, limit_bytes=pool.policy.limit_bytes)

    async def load(self, name: str, caller: Caller) -> None:
        self._check(name)
        with self.admission.admit(caller):
            async with self.lists.pool.using(name, caller.user):
                pass

    def unload(self, name: str) -> None:
        self._check(name)
        self.lists.pool.unload(name)

    def _check(self, name: str) -> None:
        if name not in self.lists.headers:
            raise ApiError(404, f"there is no model {name[:80]!r} here", param="model", code="model_not_found")


def find_problem(pool: ModelPool) -> dict[str, Any] | None:
    """Why no requests are taken; None: they are."""
    residents = pool.policy.residents.values()
    missing = [r.traits.name for r in residents if r.traits.is_pinned and r.state is not ModelState.LOADED]
    if pool.is_draining or missing:
        return {"status": "draining" if pool.is_draining else "loading", "missing": missing}
    return None
