"""/v1/responses, without state. Its streams have no ids: they cannot be resumed."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.api.answers import RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.blocks import Block, BlockChange, BlockKind, Blocks, blocks_of
from surefoot.server.answer.conversation import ChatRun, start_translated
from surefoot.server.answer.streaming import event, is_cut, send_answer
from surefoot.server.bodies import JsonRoute
from surefoot.server.errors import ApiError
from surefoot.server.schemas.replies import ResponseReply, whole_or_stream
from surefoot.server.schemas.responses import ResponsesRequest
from surefoot.server.service import PromptProgress, Service

ROUTE = "/v1/responses"


def responses_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(ResponseReply))
    async def responses(body: ResponsesRequest, http: HttpRequest) -> Response:
        chat = await start_translated(service, body.as_chat, RequestContext.of(http))
        return await send_answer(http, ResponseAnswer(chat, body), body.stream)

    return router


class ResponseAnswer:
    def __init__(self, conversation: ChatRun, body: ResponsesRequest) -> None:
        self.run = conversation.run
        self._conversation = conversation
        self._body = body
        self._names = body.names()
        self._number = -1  # of the last event

    async def reply(self) -> dict[str, Any]:
        (output,) = await self.run.whole()
        blocks = blocks_of(self._conversation.parts_of(output.outputs[0]))
        return self._response(blocks, output)

    def _response(self, blocks: list[Block], output: RequestOutput | None) -> dict[str, Any]:
        """output: None while the answer is being generated."""
        status, reason = "in_progress", None
        if output is not None:
            cut = is_cut(output.outputs[0].finish_reason)
            status, reason = ("incomplete", {"reason": "max_output_tokens"}) if cut else ("completed", None)
        body = self._body
        return {
            "id": f"resp_{self.run.position.request}",
            "object": "response",
            "created_at": self.run.position.created,
            "status": status,
            "model": self.run.service.settings.model_name,
            "output": [self._item(block, status) for block in blocks],
            "usage": None if output is None else {**_usage(output), **self.run.more_usage},
            "error": None,
            "incomplete_details": reason,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": self.run.params.temperature,
            "top_p": self.run.params.top_p,
            "text": {"format": {"type": body.text.format.type if body.text and body.text.format else "text"}},
            "tool_choice": body.model_dump(include={"tool_choice"})["tool_choice"] or "auto",
            "tools": [tool.model_dump() for tool in body.tools or ()],
            "truncation": "disabled",
        }

    def _item(self, block: Block, status: str) -> dict[str, Any]:
        name = f"{self.run.position.request[:24]}_{block.index}"
        if block.kind is BlockKind.CALL:
            return self._call(block, name, status)
        if block.kind is BlockKind.THINKING:
            content = [{"type": "reasoning_text", "text": block.text}]
            return {"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": content, "status": status}
        content = [_part(block)]
        return {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status, "content": content}

    def _call(self, block: Block, name: str, status: str) -> dict[str, Any]:
        space, own = self._names.get(block.name, (None, block.name))
        call = {"call_id": block.id, "name": own, **({"namespace": space} if space is not None else {})}
        if block.is_custom:
            return {"type": "custom_tool_call", "id": f"ctc_{name}", "status": status, **call, "input": block.text}
        return {"type": "function_call", "id": f"fc_{name}", "status": status, **call, "arguments": block.text}

    def _done(self, block: Block) -> dict[str, Any]:
        if block.kind is not BlockKind.CALL:
            return {"text": block.text}
        name = self._names.get(block.name, (None, block.name))[1]
        return {"input": block.text} if block.is_custom else {"arguments": block.text, "name": name}

    # ---- as a stream ----

    def beat(self, progress: PromptProgress) -> bytes:
        """Codex waits for events, not for bytes. It has no number of its own: those of an answer depend on no clock."""
        brief: dict[str, Any] = {"instructions": None, "tools": [], "prompt_progress": asdict(progress)}
        return self._event("response.in_progress", response={**self._response([], None), **brief})

    def failed(self, error: ApiError) -> bytes:
        return self._next("error", code=error.code or "server_error", message=error.message, param=error.param)

    def _event(self, name: str, /, **data: Any) -> bytes:
        return event({"type": name, "sequence_number": self._number, **data}, name=name)

    def _next(self, name: str, /, **data: Any) -> bytes:
        self._number += 1
        return self._event(name, **data)

    async def events(self) -> AsyncIterator[bytes]:
        blocks = Blocks()
        yield self._next("response.created", response=self._response([], None))
        yield self._next("response.in_progress", response=self._response([], None))
        async for change in blocks.changes(self._conversation):
            for changed in self._changed(*change):
                yield changed
        whole = self._response(blocks.blocks, self.run.outputs[-1])
        yield self._next(f"response.{whole['status']}", response=whole)

    def _changed(self, change: BlockChange, block: Block, text: str) -> Iterator[bytes]:
        place = {"item_id": self._item(block, "")["id"], "output_index": block.index}
        if block.kind is not BlockKind.CALL:
            place["content_index"] = 0
        if change is BlockChange.START:
            item = self._item(block, "in_progress")
            empty = item if block.kind is BlockKind.CALL else {**item, "content": []}
            yield self._next("response.output_item.added", output_index=block.index, item=empty)
            if block.kind is BlockKind.TEXT:
                yield self._next("response.content_part.added", **place, part=_part(block))
            return
        name = "response.custom_tool_call_input" if block.is_custom else _NAMES[block.kind]
        logprobs: dict[str, Any] = {"logprobs": []} if block.kind is BlockKind.TEXT else {}
        if change is BlockChange.MORE:
            yield self._next(f"{name}.delta", **place, delta=text, **logprobs)
            return
        yield self._next(f"{name}.done", **place, **self._done(block), **logprobs)
        if block.kind is BlockKind.TEXT:
            yield self._next("response.content_part.done", **place, part=_part(block))
        yield self._next("response.output_item.done", output_index=block.index, item=self._item(block, "completed"))


_NAMES = {
    BlockKind.TEXT: "response.output_text",
    BlockKind.THINKING: "response.reasoning_text",
    BlockKind.CALL: "response.function_call_arguments",
}


def _part(block: Block) -> dict[str, Any]:
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}


def _usage(output: RequestOutput) -> dict[str, Any]:
    usage = output.usage
    return {
        "input_tokens": usage.num_prompt,
        "input_tokens_details": {"cached_tokens": usage.num_cached},
        "output_tokens": usage.num_generated,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.num_prompt + usage.num_generated,
    }
