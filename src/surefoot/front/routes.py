"""What the front process tells of its models, and whether it is ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surefoot.front.catalog import Catalog
from surefoot.front.config import ModelEntry
from surefoot.front.pool import ModelPool
from surefoot.front.resident import ModelState
from surefoot.server.access.shares import Caller
from surefoot.server.schemas.ollama import ShownModel


@dataclass(frozen=True)
class PooledModels:
    """The models that a caller may use."""

    catalog: Catalog
    pool: ModelPool
    headers: Mapping[str, ShownModel]  # what is known of each from its file's header

    def of(self, caller: Caller) -> Sequence[ShownModel]:
        return [self._shown(entry) for entry in self.catalog.of(caller)]

    def find(self, name: str, caller: Caller) -> ShownModel:
        return self._shown(self.catalog.find(name, caller))

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


def find_problem(pool: ModelPool) -> dict[str, Any] | None:
    """Why no requests are taken; None: they are."""
    residents = pool.policy.residents.values()
    missing = [r.traits.name for r in residents if r.traits.is_pinned and r.state is not ModelState.LOADED]
    if pool.is_draining or missing:
        return {"status": "draining" if pool.is_draining else "loading", "missing": missing}
    return None
