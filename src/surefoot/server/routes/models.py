"""/v1/models: the names of the served model."""

from fastapi import APIRouter

from surefoot.server.schemas.tokens import ModelCard, ModelList
from surefoot.server.service import Service


def models_router(service: Service) -> APIRouter:
    router = APIRouter()

    def card(name: str) -> ModelCard:
        return ModelCard(id=name, created=service.created, max_model_len=service.llm.max_context)

    @router.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[card(name) for name in service.settings.model_names])

    @router.get("/v1/models/{model:path}")
    async def model(model: str) -> ModelCard:
        service.check_model(model)
        return card(model)

    return router
