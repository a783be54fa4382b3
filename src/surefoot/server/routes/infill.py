"""llama-server's /infill, which editors call to fill in code at the cursor. Answers have llama-server's form."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.api.answers import RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.completions import TextCompletion, start_completion
from surefoot.server.answer.streaming import EventStream, comments, event, is_cut, whole_reply
from surefoot.server.bodies import JsonRoute
from surefoot.server.errors import ApiError
from surefoot.server.schemas.infill import InfillRequest
from surefoot.server.schemas.replies import InfillReply, whole_or_stream
from surefoot.server.service import Service

ROUTE = "/infill"


def infill_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(InfillReply))
    async def infill(body: InfillRequest, http: HttpRequest) -> Response:
        completion = body.as_completion(service.settings.model_name)
        answer = InfillAnswer(await start_completion(service, completion, RequestContext.of(http)), body.n_predict == 0)
        if body.stream:
            return EventStream(answer.run, answer.events(), service.settings.read_s, beat=comments(answer.run))
        return JSONResponse(await whole_reply(http, answer.run, answer.reply))

    return router


class InfillAnswer:
    """is_silent: only the prompt was to be computed, to fill the cache; the answer is empty."""

    def __init__(self, completion: TextCompletion, is_silent: bool) -> None:
        self.run = completion.run
        self._is_silent = is_silent

    async def reply(self) -> dict[str, Any]:
        (output,) = await self.run.whole()
        return self._last("" if self._is_silent else output.outputs[0].text, output)

    def _last(self, content: str, output: RequestOutput) -> dict[str, Any]:
        (answer,), usage, timings = output.outputs, output.usage, output.timings
        prompt_s, predicted_s = timings.to_first_token - timings.queued, timings.total - timings.to_first_token
        is_word = isinstance(answer.stop_reason, str)
        return {
            "content": content,
            "model": self.run.service.settings.model_name,
            "stop": True,
            "stop_type": "limit" if is_cut(answer.finish_reason) else "word" if is_word else "eos",
            "stopping_word": answer.stop_reason if is_word else "",
            "tokens_cached": usage.num_cached,
            "tokens_evaluated": usage.num_prompt,
            "tokens_predicted": usage.num_generated,
            "truncated": False,
            "timings": {
                "prompt_n": usage.num_prompt - usage.num_cached,
                "prompt_ms": round(prompt_s * 1000, 3),
                "predicted_n": usage.num_generated,
                "predicted_ms": round(predicted_s * 1000, 3),
            },
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            async for data in self._events():
                yield event(data)
        except ApiError as error:
            self.run.service.metrics.refuse(error.status)
            yield event(error.as_openai())

    async def _events(self) -> AsyncIterator[dict[str, Any]]:
        async with aclosing(self.run.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if piece.text and not self._is_silent:
                    yield {"content": piece.text, "stop": False, "tokens": list(piece.token_ids)}
        yield self._last("", self.run.outputs[-1])
