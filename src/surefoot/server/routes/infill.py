"""llama-server's /infill, which editors call to fill in code at the cursor. Answers have llama-server's form."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.api.answers import RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.completions import TextCompletion, start_completion
from surefoot.server.answer.streaming import comment, event, failed_event, is_cut, send_answer
from surefoot.server.bodies import JsonRoute
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
        return await send_answer(http, answer, body.stream)

    return router


class InfillAnswer:
    """is_silent: only the prompt was to be computed, to fill the cache; the answer is empty."""

    failed, beat = staticmethod(failed_event), staticmethod(comment)

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

    async def events(self) -> AsyncIterator[bytes]:
        async for piece in self.run.pieces():
            if piece.text and not self._is_silent:
                yield event({"content": piece.text, "stop": False, "tokens": list(piece.token_ids)})
        yield event(self._last("", self.run.outputs[-1]))
