"""What the routes answer, as far as /openapi.json promises it. The answers are written where they are made."""

from typing import Any, Literal

from surefoot.server.schemas.base import Reply


class ErrorDetail(Reply):
    message: str  # what went wrong, and what to do
    type: str
    param: str | None
    code: str | None


class ErrorReply(Reply):
    error: ErrorDetail


class AnthropicDetail(Reply):
    type: str
    message: str


class AnthropicError(Reply):
    type: Literal["error"]
    error: AnthropicDetail


class OllamaError(Reply):
    error: str


class ChatChoice(Reply):
    index: int
    message: dict[str, Any]
    finish_reason: str


class TextChoice(Reply):
    index: int
    text: str
    finish_reason: str


class UsageReply(Reply):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatReply(Reply):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageReply


class CompletionReply(Reply):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageReply


class ResponseReply(Reply):
    id: str
    object: Literal["response"]
    status: str
    model: str
    output: list[dict[str, Any]]


class MessageReply(Reply):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None


class InfillReply(Reply):
    content: str
    stop: bool
    tokens_evaluated: int
    tokens_predicted: int


Responses = dict[int | str, dict[str, Any]]

OPENAI_ERRORS: Responses = {
    status: {"model": ErrorReply, "description": text}
    for status, text in (("4XX", "Refused: the message says what to do"), ("5XX", "Failed"))
}
ANTHROPIC_ERRORS: Responses = {status: {**reply, "model": AnthropicError} for status, reply in OPENAI_ERRORS.items()}

OLLAMA_ERRORS: Responses = {status: {**reply, "model": OllamaError} for status, reply in OPENAI_ERRORS.items()}


def whole_or_stream(model: type[Reply], stream: str = "text/event-stream") -> Responses:
    return {200: {"model": model, "content": {stream: {}}}}
