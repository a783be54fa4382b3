"""Ollama's API: /api/chat, /api/generate and their neighbours. Fields without a meaning here are ignored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from surefoot.server.schemas.base import (
    LARGEST_TOKEN,
    MOST_MESSAGES,
    MOST_TOOLS,
    Body,
    Lenient,
    LlamaFields,
    ModelName,
    Name,
    Reply,
)
from surefoot.server.schemas.chat import ChatRequest, begins
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.tokens import ModelCard
from surefoot.server.schemas.tools import Tool
from surefoot.server.schemas.vectors import MOST_INPUTS, EmbeddingRequest

LATEST = ":latest"
Think = bool | Literal["low", "medium", "high"] | None


class Options(Lenient, LlamaFields):
    """Sampling options. Others, such as num_ctx, num_gpu and num_thread, concern loading, which is done."""

    num_predict: Annotated[int | None, Field(ge=-2, le=LARGEST_TOKEN)] = None  # 0 or less: no limit

    def as_openai(self) -> dict[str, Any]:
        limit = self.num_predict if self.num_predict is not None and self.num_predict > 0 else None
        return {**super().as_openai(), "max_tokens": limit}


class OllamaFunction(Lenient):
    name: Name
    arguments: dict[str, Any] = {}  # noqa: RUF012


class OllamaCall(Lenient):
    function: OllamaFunction
    id: Annotated[str | None, Field(max_length=128)] = None


class OllamaMessage(Lenient):
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: Annotated[list[OllamaCall] | None, Field(max_length=MOST_TOOLS)] = None
    tool_name: Annotated[str | None, Field(max_length=256)] = None
    tool_call_id: Annotated[str | None, Field(max_length=128)] = None


class Generating(Body):
    """The fields that /api/chat and /api/generate share."""

    model: ModelName | None = None
    stream: bool = True
    format: Literal["json", ""] | dict[str, Any] | None = None
    options: Options | None = None
    keep_alive: Any = None
    think: Think = None

    def _shared(self) -> dict[str, Any]:
        """These fields as parameters of a chat request."""
        thinking = {"chat_template_kwargs": {"enable_thinking": self.think}} if isinstance(self.think, bool) else {}
        effort = {"reasoning_effort": self.think} if isinstance(self.think, str) else {}
        options = (self.options or Options()).as_openai()
        return {"stream": self.stream, "response_format": self.response_format, **options, **thinking, **effort}

    @property
    def response_format(self) -> dict[str, Any] | None:
        if isinstance(self.format, dict):
            return {"type": "json_schema", "json_schema": {"schema": self.format}}
        return {"type": "json_object"} if self.format == "json" else None


class OllamaChatRequest(Generating):
    messages: Annotated[list[OllamaMessage], Field(max_length=MOST_MESSAGES)] = []  # noqa: RUF012
    tools: Annotated[list[Tool] | None, Field(max_length=MOST_TOOLS)] = None

    def as_chat(self, model: str) -> ChatRequest:
        """The request in OpenAI's form. A last message by the assistant is continued."""
        messages = [_as_openai(number, message) for number, message in enumerate(self.messages)]
        return ChatRequest.model_validate(
            {"model": model, "messages": messages, "tools": self.tools or None, **begins(messages), **self._shared()}
        )


class GenerateRequest(Generating):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False  # no template is applied to the prompt
    images: list[Any] | None = None
    template: str | None = None
    context: list[int] | None = None

    def as_completion(self, model: str) -> CompletionRequest:
        shared = {name: value for name, value in self._shared().items() if name in CompletionRequest.model_fields}
        return CompletionRequest(model=model, prompt=self.prompt, suffix=self.suffix or None, **shared)

    def as_chat(self, model: str) -> ChatRequest:
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*system, {"role": "user", "content": self.prompt}]
        return ChatRequest.model_validate({"model": model, "messages": messages, **self._shared()})


def _as_openai(number: int, message: OllamaMessage) -> dict[str, Any]:
    """The message in OpenAI's form. Ollama's calls have no ids, so they are made up: a result belongs to the call
    before."""
    calls = [
        {
            "id": call.id or f"call_{number}_{index}",
            "function": {"name": call.function.name, "arguments": json.dumps(call.function.arguments)},
        }
        for index, call in enumerate(message.tool_calls or ())
    ]
    return {
        "role": message.role,
        "content": message.content,
        "tool_calls": calls or None,
        "tool_call_id": (message.tool_call_id or f"call_{number}") if message.role == "tool" else None,
        "name": message.tool_name,
        "reasoning_content": message.thinking,
    }


class EmbedRequest(Body):
    model: ModelName | None = None
    input: str | Annotated[list[str], Field(max_length=MOST_INPUTS)]
    truncate: bool | None = None  # ignored: texts that are too long are refused
    dimensions: Annotated[int | None, Field(ge=1, le=LARGEST_TOKEN)] = None
    keep_alive: Any = None
    options: Any = None

    def as_openai(self, model: str) -> EmbeddingRequest:
        texts: list[str | list[int]] = [self.input] if isinstance(self.input, str) else [*self.input]
        return EmbeddingRequest(model=model, input=texts, dimensions=self.dimensions)


class OldEmbedRequest(Body):
    model: ModelName | None = None
    prompt: str
    keep_alive: Any = None
    options: Any = None


class ShowRequest(Body):
    model: ModelName | None = None
    name: ModelName | None = None  # sent by older clients instead of model
    verbose: bool | None = None


class OllamaChatReply(Reply):
    model: str
    created_at: str
    message: dict[str, Any]
    done: bool


class GenerateReply(Reply):
    model: str
    created_at: str
    response: str
    done: bool


class EmbedReply(Reply):
    model: str
    embeddings: list[list[float]]
    prompt_eval_count: int = 0
    load_duration: int = 0
    total_duration: int = 0


class OldEmbedReply(Reply):
    embedding: list[float]


class Details(Reply):
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    parent_model: str = ""


class ListedModel(Reply):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class ModelsReply(Reply):
    models: list[ListedModel]


class RunningModel(ListedModel):
    size_vram: int = 0
    context_length: int
    expires_at: str = "9999-12-31T23:59:59Z"


class RunningReply(Reply):
    models: list[RunningModel]


class ShowReply(Reply):
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    template: str
    modelfile: str
    parameters: str
    modified_at: str


class VersionReply(Reply):
    version: str


@dataclass(frozen=True)
class ShownModel:
    """What clients are told of a model."""

    names: Sequence[str]  # the first is its own
    family: str
    file_bytes: int  # of the weights on disk
    weight_bytes: int  # in memory
    max_context: int
    digest: str
    created: int  # Unix time
    is_loaded: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)  # fields of OpenAI's card

    def card(self, name: str) -> ModelCard:
        return ModelCard(id=name, created=self.created, max_model_len=self.max_context, **self.more)

    @property
    def modified_at(self) -> str:
        return datetime.fromtimestamp(self.created, UTC).isoformat().replace("+00:00", "Z")

    @property
    def details(self) -> Details:
        return Details(
            format="gguf", family=self.family, families=[self.family], parameter_size="", quantization_level=""
        )

    def listed(self) -> ListedModel:
        name = self.names[0] if ":" in self.names[0] else f"{self.names[0]}{LATEST}"
        return ListedModel(
            name=name, model=name, modified_at=self.modified_at, size=self.weight_bytes, digest=self.digest,
            details=self.details,
        )  # fmt: skip

    def running(self) -> RunningModel:
        return RunningModel(**self.listed().model_dump(), context_length=self.max_context)
