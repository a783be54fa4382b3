"""/v1/rerank and its other paths: documents get scores for a query."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.reranking import start_reranking
from surefoot.server.answer.streaming import whole_reply
from surefoot.server.bodies import JsonRoute
from surefoot.server.schemas.reranking import RerankReply, RerankRequest
from surefoot.server.service import Service

PATHS = ("/v1/rerank", "/rerank", "/v2/rerank")  # Jina's, Cohere's old one and vLLM's; vLLM's; Cohere's new one


def reranking_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    async def rerank(body: RerankRequest, http: HttpRequest) -> RerankReply:
        answer = await start_reranking(service, body, RequestContext.of(http))
        return await whole_reply(http, answer.run, answer.whole)

    for path in PATHS:
        router.post(path, response_model_exclude_none=True)(rerank)
    return router
