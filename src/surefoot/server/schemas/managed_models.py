"""/admin/models: what admins see of the models, and the model that they choose."""

from pydantic import Field

from surefoot.server.schemas.base import Body, ModelName, Reply
from surefoot.server.schemas.ollama import ShownModel


class ChosenModel(Body):
    model: ModelName = Field(description="the model's own name, no alias")


class ManagedModel(Reply):
    name: str
    aliases: list[str]
    state: str  # as in /v1/models
    is_pinned: bool
    num_running: int  # requests that it answers
    file_bytes: int  # of its weights on disk
    memory_bytes: int  # of its process, without mapped files; of one of several models: as planned
    context: int  # tokens of one request that fit

    @classmethod
    def of(
        cls, shown: ShownModel, num_running: int, memory_bytes: int, state: str = "loaded", is_pinned: bool = False
    ) -> "ManagedModel":
        name, *aliases = shown.names
        return cls(
            name=name, aliases=aliases, state=state, is_pinned=is_pinned, num_running=num_running,
            file_bytes=shown.file_bytes, memory_bytes=memory_bytes, context=shown.max_context,
        )  # fmt: skip


class ManagedModels(Reply):
    data: list[ManagedModel]
    limit_bytes: int | None  # memory that the models share; null: the server has one model, which stays loaded
