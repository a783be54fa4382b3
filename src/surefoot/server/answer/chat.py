"""A conversation's answers in the form of OpenAI's chat completions, whole or as a stream."""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from surefoot.api.answers import CompletionOutput, Logprob, Piece
from surefoot.server.access.request_context import StreamPosition
from surefoot.server.answer.conversation import ChatRun
from surefoot.server.answer.custom_calls import as_openai
from surefoot.server.answer.parsing import MessageDelta, whole_calls
from surefoot.server.answer.streaming import (
    DONE,
    ChunkTemplate,
    comment,
    failed_event,
    finish_fields,
    reply_head,
    usage_of,
)
from surefoot.text import Tokenizer

UNFINISHED: Mapping[str, Any] = finish_fields(None)


class ChatCompletion:
    """The answers to a chat request, as OpenAI's chat completion or its chunks."""

    failed, beat = staticmethod(failed_event), staticmethod(comment)

    def __init__(self, conversation: ChatRun) -> None:
        self.run = conversation.run
        self._conversation = conversation
        self._body = conversation.body
        self._tokenizer = self.run.service.llm.tokenizer

    # ---- whole ----

    async def reply(self) -> dict[str, Any]:
        (output,) = await self.run.whole()
        return {
            **reply_head(self.run, "chatcmpl", "chat.completion"),
            "choices": [self._choice(answer) for answer in output.outputs],
            "usage": usage_of(self.run, [output]),
        }

    def _choice(self, answer: CompletionOutput) -> dict[str, Any]:
        whole = self._conversation.parts_of(answer)
        calls = [*map(as_openai, whole_calls(whole.tool_calls))]
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

    # ---- as a stream ----

    async def events(self) -> AsyncIterator[bytes]:
        """A resumed stream computes again, but does not send, what the client already has."""
        start = self.run.position
        position = start.restarted()
        called = [False] * len(position.counts)
        if not any(start.counts) and not any(start.ended):
            for index in range(len(position.counts)):
                yield self._chunk(index, {"role": "assistant", "content": ""}, position)
        async for piece, delta in self._conversation.deltas():
            index, count = piece.index, position.counts[piece.index] + len(piece.token_ids)
            position = position.advanced(index, count, False)
            called[index] = called[index] or bool(delta.tool_calls)
            if count > start.counts[index] and self._is_worth_sending(delta, piece):
                yield self._chunk(index, _as_message(delta), position, piece)
            if piece.finish_reason is not None:
                position = position.advanced(index, count, True)
                if not start.ended[index]:
                    yield self._chunk(index, {}, position, finish=finish_fields(piece.finish_reason, called[index]))
        if self._body.wants_usage and not start.usage_sent:
            yield self._template.last(usage_of(self.run, self.run.outputs), position.with_usage())
        yield DONE

    def _is_worth_sending(self, delta: MessageDelta, piece: Piece) -> bool:
        return bool(delta or piece.logprobs or (self._body.return_token_ids and piece.token_ids))

    @cached_property
    def _template(self) -> ChunkTemplate:
        return ChunkTemplate(reply_head(self.run, "chatcmpl", "chat.completion.chunk"), self._body.wants_usage)

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        position: StreamPosition,
        piece: Piece | None = None,
        finish: Mapping[str, Any] = UNFINISHED,
    ) -> bytes:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, **finish}
        if piece is not None and piece.logprobs:
            choice["logprobs"] = chat_logprobs(self._tokenizer, piece.logprobs)
        if piece is not None and self._body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return self._template.event(choice, position)


def _as_message(delta: MessageDelta) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if delta.reasoning:
        message["reasoning_content"] = delta.reasoning
    if delta.tool_calls:
        message["tool_calls"] = [*map(as_openai, delta.tool_calls)]
    if delta.content or not message:
        message["content"] = delta.content
    return message


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[Mapping[int, Logprob]] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {"content": [_token_logprobs(tokenizer, token) for token in tokens], "refusal": None}


def _token_logprobs(tokenizer: Tokenizer, logprobs: Mapping[int, Logprob]) -> dict[str, Any]:
    """The drawn token comes first in the mapping."""
    drawn = next(iter(logprobs))
    ranked = sorted((logprob.rank, token) for token, logprob in logprobs.items() if logprob.rank is not None)
    top = [_token_logprob(tokenizer, token, logprobs[token]) for _, token in ranked]
    return {**_token_logprob(tokenizer, drawn, logprobs[drawn]), "top_logprobs": top}


def _token_logprob(tokenizer: Tokenizer, token: int, logprob: Logprob) -> dict[str, Any]:
    """With the token's bytes, since a token may be part of a character."""
    return {"token": logprob.decoded_token, "logprob": logprob.logprob, "bytes": list(tokenizer.token_bytes(token))}
