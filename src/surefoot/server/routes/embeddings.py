"""/v1/embeddings: texts or token ids become vectors of unit length."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.embeddings import start_embeddings
from surefoot.server.answer.streaming import whole_reply
from surefoot.server.bodies import JsonRoute
from surefoot.server.schemas.embeddings import EmbeddingReply, EmbeddingRequest
from surefoot.server.service import Service

ROUTE = "/v1/embeddings"


def embeddings_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE)
    async def embeddings(body: EmbeddingRequest, http: HttpRequest) -> EmbeddingReply:
        answer = await start_embeddings(service, body, RequestContext.of(http))
        return await whole_reply(http, answer.run, answer.whole)

    return router
