"""OpenAI's API but for responses, files, batches and models: chats, completions, embeddings; and rerankings, whose
paths are Jina's, Cohere's and vLLM's."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.chat import ChatCompletion
from surefoot.server.answer.completions import start_completion
from surefoot.server.answer.conversation import start_conversation
from surefoot.server.answer.streaming import send_answer, send_whole
from surefoot.server.answer.vectors import start_embeddings, start_reranking
from surefoot.server.bodies import JsonRoute
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.replies import ChatReply, CompletionReply, whole_or_stream
from surefoot.server.schemas.vectors import EmbeddingReply, EmbeddingRequest, RerankReply, RerankRequest
from surefoot.server.service import Service

RERANKINGS = ("/v1/rerank", "/rerank", "/v2/rerank")  # Jina's, Cohere's old one and vLLM's; vLLM's; Cohere's new one


def openai_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/chat/completions", responses=whole_or_stream(ChatReply))
    async def chat_completions(body: ChatRequest, http: HttpRequest) -> Response:
        chat = await start_conversation(service, body, RequestContext.of(http))
        return await send_answer(http, ChatCompletion(chat), body.stream)

    @router.post("/v1/completions", responses=whole_or_stream(CompletionReply))
    async def completions(body: CompletionRequest, http: HttpRequest) -> Response:
        return await send_answer(http, await start_completion(service, body, RequestContext.of(http)), body.stream)

    @router.post("/v1/embeddings", response_model=EmbeddingReply)
    async def embeddings(body: EmbeddingRequest, http: HttpRequest) -> Response:
        return await send_whole(http, await start_embeddings(service, body, RequestContext.of(http)))

    async def rerank(body: RerankRequest, http: HttpRequest) -> Response:
        return await send_whole(http, await start_reranking(service, body, RequestContext.of(http)))

    for path in RERANKINGS:
        router.post(path, response_model=RerankReply)(rerank)
    return router
