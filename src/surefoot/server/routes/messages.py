"""Anthropic's /v1/messages. Its streams have no ids: they cannot be resumed."""

import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.api.answers import CompletionOutput
from surefoot.engine import Usage
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.blocks import Block, BlockChange, BlockKind, Blocks, blocks_of
from surefoot.server.answer.conversation import ChatRun, render_request, start_translated
from surefoot.server.answer.parsing import arguments_of
from surefoot.server.answer.streaming import MEMORY, event, is_cut, send_answer
from surefoot.server.bodies import JsonRoute, translated
from surefoot.server.errors import ApiError
from surefoot.server.schemas.messages import CountRequest, MessagesRequest
from surefoot.server.schemas.replies import MessageReply, whole_or_stream
from surefoot.server.service import PromptProgress, Service

ROUTE = "/v1/messages"


def messages_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE, responses=whole_or_stream(MessageReply))
    async def messages(body: MessagesRequest, http: HttpRequest) -> Response:
        chat = await start_translated(service, body.as_chat, RequestContext.of(http))
        return await send_answer(http, MessageAnswer(chat, body.num_left_out), body.stream)

    @router.post(f"{ROUTE}/count_tokens")
    async def count_tokens(body: CountRequest, http: HttpRequest) -> dict[str, int]:
        service.check_model(body.model)
        num_bytes = http.state.num_body_bytes
        with service.admit(http.state.caller):
            chat = await service.body_work.run(num_bytes, partial(translated, body.as_chat))
            prompt = await render_request(service, chat, num_bytes, time.time())
            return {"input_tokens": len(await service.prompts.encode(prompt, rendered=True))}

    return router


class MessageAnswer:
    def __init__(self, conversation: ChatRun, num_left_out: int) -> None:
        """num_left_out: characters of the system text that the model did not get."""
        self.run = conversation.run
        self._conversation = conversation
        self._num_left_out = num_left_out

    async def reply(self) -> dict[str, Any]:
        (output,) = await self.run.whole()
        (answer,) = output.outputs
        blocks = blocks_of(self._conversation.parts_of(answer))
        content = [_content(block) for block in blocks]
        return self._message(content, output.usage, **_stop(answer, blocks))

    def _message(self, content: list[dict[str, Any]], usage: Usage, **more: Any) -> dict[str, Any]:
        return {
            "id": f"msg_{self.run.position.request}",
            "type": "message",
            "role": "assistant",
            "model": self.run.service.settings.model_name,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_usage(usage), **self.run.more_usage, "left_out_characters": self._num_left_out},
            **more,
        }

    def beat(self, progress: PromptProgress) -> bytes:
        return _event("ping", prompt_progress=asdict(progress))

    def failed(self, error: ApiError) -> bytes:
        return event(error.as_anthropic(), name="error")

    async def events(self) -> AsyncIterator[bytes]:
        num_cached = await self.run.cached_at_start()  # some clients read it here, and no more at the end
        yield _event("message_start", message=self._message([], Usage(self.run.num_prompt, 0, num_cached)))
        blocks = Blocks()
        async for change in blocks.changes(self._conversation):
            yield _block_event(*change)
        output = self.run.outputs[-1]
        yield _event("message_delta", delta=_stop(output.outputs[0], blocks.blocks), usage=_usage(output.usage))
        yield _event("message_stop")


def _event(name: str, /, **data: Any) -> bytes:
    return event({"type": name, **data}, name=name)


def _block_event(change: BlockChange, block: Block, text: str) -> bytes:
    if change is BlockChange.START:
        return _event("content_block_start", index=block.index, content_block=_content(block))
    if change is BlockChange.STOP:
        return _event("content_block_stop", index=block.index)
    delta = {
        BlockKind.TEXT: {"type": "text_delta", "text": text},
        BlockKind.THINKING: {"type": "thinking_delta", "thinking": text},
        BlockKind.CALL: {"type": "input_json_delta", "partial_json": text},
    }[block.kind]
    return _event("content_block_delta", index=block.index, delta=delta)


def _content(block: Block) -> dict[str, Any]:
    if block.kind is BlockKind.TEXT:
        return {"type": "text", "text": block.text}
    if block.kind is BlockKind.THINKING:
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": arguments_of(block.text)}


def _stop(answer: CompletionOutput, blocks: list[Block]) -> dict[str, Any]:
    """Why the answer ended, in Anthropic's words."""
    if is_cut(answer.finish_reason):
        reason = "model_context_window_exceeded" if answer.finish_reason == MEMORY else "max_tokens"
        return {"stop_reason": reason, "stop_sequence": None}
    if isinstance(answer.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    has_calls = any(block.kind is BlockKind.CALL for block in blocks)
    return {"stop_reason": "tool_use" if has_calls else "end_turn", "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.num_prompt - usage.num_cached,
        "cache_read_input_tokens": usage.num_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.num_generated,
    }
