"""/v1/chat/completions: conversations in, messages out, whole or as a stream."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.chat import ChatCompletion
from surefoot.server.answer.conversation import start_conversation
from surefoot.server.answer.sse import comments
from surefoot.server.answer.streaming import EventStream, notice_headers, whole_reply
from surefoot.server.json_route import JsonRoute
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.replies import ChatReply, whole_or_stream
from surefoot.server.service import Service

ROUTE = "/v1/chat/completions"


def chat_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(ChatReply))
    async def chat_completions(body: ChatRequest, http: HttpRequest) -> Response:
        chat = ChatCompletion(await start_conversation(service, body, RequestContext.of(http)))
        if body.stream:
            return EventStream(chat.run, chat.events(), service.settings.read_s, beat=comments(chat.run))
        reply = await whole_reply(http, chat.run, chat.reply)
        return JSONResponse(reply, headers=notice_headers(chat.run.notices))

    return router
