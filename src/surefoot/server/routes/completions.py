"""/v1/completions: continues texts or token ids."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.completions import start_completion
from surefoot.server.answer.sse import comments
from surefoot.server.answer.streaming import EventStream, whole_reply
from surefoot.server.json_route import JsonRoute
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.replies import CompletionReply, whole_or_stream
from surefoot.server.service import Service

ROUTE = "/v1/completions"


def completions_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(CompletionReply))
    async def completions(body: CompletionRequest, http: HttpRequest) -> Response:
        completion = await start_completion(service, body, RequestContext.of(http))
        if body.stream:
            return EventStream(
                completion.run, completion.events(), service.settings.read_s, beat=comments(completion.run)
            )
        return JSONResponse(await whole_reply(http, completion.run, completion.reply))

    return router
