"""The models by the names that clients use, and who may use which."""

from collections.abc import Sequence
from typing import Any

from surefoot.front.config import ModelEntry
from surefoot.server.access.shares import Caller
from surefoot.server.bodies import parse_json
from surefoot.server.errors import ApiError
from surefoot.server.schemas.ollama import LATEST


class Catalog:
    """any_name: a name that no model has means the first one."""

    def __init__(self, models: Sequence[ModelEntry], any_name: bool = False) -> None:
        self.models = tuple(models)
        self._by_name = {name: entry for entry in models for name in entry.names}
        self._any_name = any_name

    def of(self, caller: Caller) -> list[ModelEntry]:
        return [entry for entry in self.models if entry.admits(caller.user, caller.key)]

    def find(self, name: str | None, caller: Caller) -> ModelEntry:
        """The model that a request names; without a name, the caller's first. A model that the caller may not use is
        not there."""
        own = self.of(caller)
        entry = self._by_name.get(name or "") or self._by_name.get((name or "").removesuffix(LATEST))
        if entry in own:
            return entry
        if own and (name is None or (entry is None and self._any_name)):
            return own[0]
        known = ", ".join(repr(entry.name) for entry in own) or "none: your key may use no model"
        raise ApiError(
            404, f"there is no model {(name or '')[:80]!r} here: use one of {known}", param="model",
            code="model_not_found",
        )  # fmt: skip


def model_named_in(body: bytes) -> str | None:
    """The model that a JSON body names. None: it names none, or is not JSON, which its route then says."""
    try:
        given: Any = parse_json(body)
    except ApiError:
        return None
    if not isinstance(given, dict):
        return None
    name = given.get("model") or given.get("name")  # the latter in Ollama's /api/show
    return name if isinstance(name, str) else None
