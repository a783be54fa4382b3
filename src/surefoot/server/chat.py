"""/v1/chat/completions: conversations in, messages out, whole or as a stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.api.outputs import CompletionOutput, Logprob, Piece, RequestOutput
from surefoot.engine import Usage
from surefoot.server.asker import Asker
from surefoot.server.conversation import Conversation, start_conversation
from surefoot.server.finish import finish_fields
from surefoot.server.parts import Delta
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.replies import ChatReply, whole_or_stream
from surefoot.server.service import Service
from surefoot.server.sse import Mark, Template, openai_stream
from surefoot.server.streaming import EventStream, notice_headers, unless_gone
from surefoot.server.tool_calls import whole_calls
from surefoot.text import Tokenizer

ROUTE = "/v1/chat/completions"
UNFINISHED: Mapping[str, Any] = finish_fields(None)


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post(ROUTE, responses=whole_or_stream(ChatReply))
    async def chat_completions(body: ChatRequest, http: HttpRequest) -> Response:
        chat = Chat(await start_conversation(service, body, Asker.of(http)))
        if body.stream:
            return EventStream(chat.run, chat.events(), service.settings.read_s)
        reply = await unless_gone(http, chat.run, chat.reply)
        return JSONResponse(reply, headers=notice_headers(chat.run.notices))

    return router


class Chat:
    """A request's answers as OpenAI's clients know them."""

    def __init__(self, conversation: Conversation) -> None:
        self.run = conversation.run
        self._conversation = conversation
        self._body = conversation.body
        self._tokenizer = self.run.service.llm.llm.tokenizer
        self._template = Template(self._head("chat.completion.chunk"), self._wants_usage)

    # ---- whole ----

    async def reply(self) -> dict[str, Any]:
        (output,) = await self.run.whole()
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(answer) for answer in output.outputs],
            "usage": {**usage_of([output]), "sampling": self.run.sampling},
        }

    def _choice(self, answer: CompletionOutput) -> dict[str, Any]:
        whole = self._conversation.parts_of(answer)
        calls = whole_calls(whole.tool_calls)
        content = whole.content if whole.content or not calls else None
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        if whole.reasoning:
            message["reasoning_content"] = whole.reasoning
        choice = {
            "index": answer.index,
            "message": message,
            "logprobs": chat_logprobs(self._tokenizer, answer.logprobs),
            **finish_fields(answer.finish_reason, bool(calls)),
        }
        return choice | ({"token_ids": list(answer.token_ids)} if self._body.return_token_ids else {})

    def _head(self, kind: str) -> dict[str, Any]:
        service = self.run.service
        return {
            "id": f"chatcmpl-{self.run.mark.request}",
            "object": kind,
            "created": self.run.mark.created,
            "model": service.settings.model_name,
            "system_fingerprint": service.fingerprint,
        }

    # ---- as a stream ----

    def events(self) -> AsyncGenerator[bytes, None]:
        """What the client has already is computed again, and not sent."""
        return openai_stream(self._chunks(), self.run.service.metrics.refuse)

    async def _chunks(self) -> AsyncIterator[bytes]:
        start = self.run.mark
        mark = Mark.start(start.digest, start.request, start.created, start.seed, len(start.counts))
        called = [False] * len(mark.counts)
        if not any(start.counts) and not any(start.ended):
            for index in range(len(mark.counts)):
                yield self._chunk(index, {"role": "assistant", "content": ""}, mark)
        async with aclosing(self._conversation.deltas()) as deltas:  # type: ignore[type-var]
            async for piece, delta in deltas:
                index, count = piece.index, mark.counts[piece.index] + len(piece.token_ids)
                mark = mark.advanced(index, count, False)
                called[index] = called[index] or bool(delta.tool_calls)
                if count > start.counts[index] and self._is_worth_sending(delta, piece):
                    yield self._chunk(index, _as_message(delta), mark, piece)
                if piece.finish_reason is not None:
                    mark = mark.advanced(index, count, True)
                    if not start.ended[index]:
                        yield self._chunk(index, {}, mark, finish=finish_fields(piece.finish_reason, called[index]))
        if self._wants_usage and not start.usage_sent:
            usage = {**usage_of(self.run.outputs), "sampling": self.run.sampling}
            yield self._template.last(usage, mark.with_usage())

    def _is_worth_sending(self, delta: Delta, piece: Piece) -> bool:
        return bool(delta or piece.logprobs or (self._body.return_token_ids and piece.token_ids))

    @property
    def _wants_usage(self) -> bool:
        return bool(self._body.stream_options and self._body.stream_options.include_usage)

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        mark: Mark,
        piece: Piece | None = None,
        finish: Mapping[str, Any] = UNFINISHED,
    ) -> bytes:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, **finish}
        if piece is not None and piece.logprobs:
            choice["logprobs"] = chat_logprobs(self._tokenizer, piece.logprobs)
        if piece is not None and self._body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return self._template.event(choice, mark)


def _as_message(delta: Delta) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if delta.reasoning:
        message["reasoning_content"] = delta.reasoning
    if delta.tool_calls:
        message["tool_calls"] = list(delta.tool_calls)
    if delta.content or not message:
        message["content"] = delta.content
    return message


def _predicted(usages: Sequence[Usage]) -> dict[str, int]:
    """Tokens that were guessed ahead, under OpenAI's names."""
    drafted, accepted = sum(one.num_drafted for one in usages), sum(one.num_accepted for one in usages)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}


def usage_of(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """timings_ms: of the slowest, so that they add up to what the client waited."""
    prompt = sum(output.usage.num_prompt for output in outputs)
    generated = sum(output.usage.num_generated for output in outputs)
    slowest = max((output.timings for output in outputs), key=lambda timings: timings.total)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(output.usage.num_cached for output in outputs)},
        "completion_tokens_details": _predicted([output.usage for output in outputs]),
        "timings_ms": {
            "queue": round(slowest.queued * 1000, 3),
            "prefill": round((slowest.to_first_token - slowest.queued) * 1000, 3),
            "decode": round((slowest.total - slowest.to_first_token) * 1000, 3),
        },
    }


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[Mapping[int, Logprob]] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {"content": [_token_logprobs(tokenizer, one) for one in tokens], "refusal": None}


def _token_logprobs(tokenizer: Tokenizer, found: Mapping[int, Logprob]) -> dict[str, Any]:
    """The drawn token comes first in the mapping."""
    drawn = next(iter(found))
    ranked = sorted((one.rank, token) for token, one in found.items() if one.rank is not None)
    top = [_token_logprob(tokenizer, token, found[token]) for _, token in ranked]
    return {**_token_logprob(tokenizer, drawn, found[drawn]), "top_logprobs": top}


def _token_logprob(tokenizer: Tokenizer, token: int, found: Logprob) -> dict[str, Any]:
    """A token's bytes are there since its text may be part of a character."""
    return {"token": found.decoded_token, "logprob": found.logprob, "bytes": list(tokenizer.token_bytes(token))}
