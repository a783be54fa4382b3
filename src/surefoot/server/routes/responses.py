"""/v1/responses, without state. Its streams have no ids: they cannot be resumed."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.api.answers import RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.blocks import Block, BlockChange, BlockKind, Blocks, blocks_of
from surefoot.server.answer.conversation import ChatRun, start_conversation
from surefoot.server.answer.streaming import EventStream, event, is_cut, notice_headers, whole_reply
from surefoot.server.bodies import JsonRoute, translated
from surefoot.server.errors import ApiError
from surefoot.server.schemas.replies import ResponseReply, whole_or_stream
from surefoot.server.schemas.responses import ResponsesRequest
from surefoot.server.service import PromptProgress, Service

ROUTE = "/v1/responses"
Event = tuple[str, dict[str, Any]]


def responses_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(ResponseReply))
    async def responses(body: ResponsesRequest, http: HttpRequest) -> Response:
        context = RequestContext.of(http)
        chat = await service.body_work.run(context.num_body_bytes, partial(translated, body.as_chat))
        answer = ResponseAnswer(await start_conversation(service, chat, context), body)
        if body.stream:
            return EventStream(answer.run, answer.events(), service.settings.read_s, beat=answer.beat)
        reply = await whole_reply(http, answer.run, answer.reply)
        return JSONResponse(reply, headers=notice_headers(answer.run.notices))

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

    async def beat(self) -> bytes:
        """Codex waits for events, not for bytes. It has no number of its own: those of an answer depend on no clock."""
        return await self.run.beat(self._in_progress)

    def _in_progress(self, progress: PromptProgress) -> bytes:
        brief: dict[str, Any] = {"instructions": None, "tools": [], "prompt_progress": asdict(progress)}
        response = {**self._response([], None), **brief}
        return self._numbered("response.in_progress", {"response": response})

    def _numbered(self, name: str, data: dict[str, Any]) -> bytes:
        return event({"type": name, "sequence_number": self._number, **data}, name=name)

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            async for name, data in self._events():
                self._number += 1
                yield self._numbered(name, data)
        except ApiError as error:
            self.run.service.metrics.refuse(error.status)
            problem = {"code": error.code or "server_error", "message": error.message, "param": error.param}
            self._number += 1
            yield self._numbered("error", problem)

    async def _events(self) -> AsyncIterator[Event]:
        blocks = Blocks()
        yield "response.created", {"response": self._response([], None)}
        yield "response.in_progress", {"response": self._response([], None)}
        async with aclosing(self._conversation.deltas()) as deltas:  # type: ignore[type-var]
            async for _, delta in deltas:
                for change in blocks.feed(delta):
                    for event_data in self._changed(*change):
                        yield event_data
        for change in blocks.finish():
            for event_data in self._changed(*change):
                yield event_data
        whole = self._response(blocks.blocks, self.run.outputs[-1])
        yield f"response.{whole['status']}", {"response": whole}

    def _changed(self, change: BlockChange, block: Block, text: str) -> Iterator[Event]:
        place = {"item_id": self._item(block, "")["id"], "output_index": block.index}
        if block.kind is not BlockKind.CALL:
            place["content_index"] = 0
        if change is BlockChange.START:
            item = self._item(block, "in_progress")
            empty = item if block.kind is BlockKind.CALL else {**item, "content": []}
            yield "response.output_item.added", {"output_index": block.index, "item": empty}
            if block.kind is BlockKind.TEXT:
                yield "response.content_part.added", {**place, "part": _part(block)}
            return
        name = "response.custom_tool_call_input" if block.is_custom else _NAMES[block.kind]
        if change is BlockChange.MORE:
            yield f"{name}.delta", {**place, "delta": text, **_NO_LOGPROBS[block.kind]}
            return
        yield f"{name}.done", {**place, **self._done(block), **_NO_LOGPROBS[block.kind]}
        if block.kind is BlockKind.TEXT:
            yield "response.content_part.done", {**place, "part": _part(block)}
        yield "response.output_item.done", {"output_index": block.index, "item": self._item(block, "completed")}


_NAMES = {
    BlockKind.TEXT: "response.output_text",
    BlockKind.THINKING: "response.reasoning_text",
    BlockKind.CALL: "response.function_call_arguments",
}
_NO_LOGPROBS: dict[BlockKind, dict[str, Any]] = {
    BlockKind.TEXT: {"logprobs": []},
    BlockKind.THINKING: {},
    BlockKind.CALL: {},
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
