"""/v1/chat/completions: messages, their parts, and the request.

No model here reads images, sound or files. An agent sends its history again every turn, so a part that is refused there
would end its session. Only what the user has just sent is refused, in words that say why; anywhere else the part
becomes a short text in its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from surefoot.server.schemas.base import (
    MOST_LOGPROBS,
    MOST_MESSAGES,
    MOST_TOOLS,
    Lenient,
    Positive,
    ResponseFormat,
    SamplingFields,
    tools_of,
)
from surefoot.server.schemas.tools import AnyCall, AnyChoice, AnyTool, CustomCall, ToolCall

MOST_VARIABLES = 16
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_MEANING = {
    **dict.fromkeys(("image", "image_url", "input_image"), ("image", "sees no images")),
    **dict.fromkeys(("video", "video_url", "input_video"), ("video", "sees no images")),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), ("sound", "hears no sound")),
    **dict.fromkeys(("file", "input_file", "container_upload"), ("file", "reads no files")),
}


class MediaPart(Lenient):
    """An image, sound or a file. Its data is not kept."""

    type: Literal[
        "image", "image_url", "input_image", "video", "video_url", "input_video", "audio", "audio_url", "input_audio",
        "file", "input_file", "container_upload",
    ]  # fmt: skip

    @property
    def text(self) -> str:
        noun, fact = _MEANING[self.type]
        return f"[{noun}: this model {fact}]"

    @property
    def complaint(self) -> str:
        return f"this model {_MEANING[self.type][1]}: send text alone"


class HasText(Protocol):
    """A part of a message, as the model gets it."""

    @property
    def text(self) -> str: ...


def text_of(content: str | Iterable[HasText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def refuse_new_media(messages: list[Any]) -> list[Any]:
    """Raises ValueError if what the user has just sent holds a part with a complaint. A tool's result is not the
    user's."""
    last = messages[-1]
    parts = last.content if getattr(last, "role", None) == "user" and isinstance(last.content, list) else []
    complaints = [complaint for part in parts if (complaint := getattr(part, "complaint", None)) is not None]
    if complaints and all(part.type != "tool_result" for part in parts):
        raise ValueError(complaints[0])
    return messages


class TextPart(Lenient):
    type: Literal["text"]
    text: str


class RefusalPart(Lenient):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Part = Annotated[TextPart | RefusalPart | MediaPart, Field(discriminator="type")]
Content = str | list[Part]


class Message(Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Annotated[str | None, Field(max_length=256)] = None
    tool_calls: list[AnyCall] | None = None
    tool_call_id: Annotated[str | None, Field(max_length=128)] = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> "Message":
        if self.content is None and not (self.role == "assistant" and (self.tool_calls or self.refusal)):
            raise ValueError(f"a message of the {self.role} needs content: give a text")
        return self

    def as_template(self) -> dict[str, Any]:
        """The message for a chat template: the content as one text, the role developer as system."""
        message = self.model_dump(exclude_none=True, exclude={"content", "role", "refusal", "tool_calls"})
        if self.tool_calls is not None:
            message["tool_calls"] = [call.model_dump(exclude_none=True) for call in self.functions]
        return {
            "role": "system" if self.role == "developer" else self.role,
            "content": text_of(self.content or self.refusal or ""),
            **message,
        }

    @property
    def functions(self) -> list[ToolCall]:
        """Its calls, all as calls of functions."""
        return [call.as_function() if isinstance(call, CustomCall) else call for call in self.tool_calls or ()]


def begins(messages: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Fields of a chat request for an API in which a last message of the assistant begins the answer (prefill)."""
    last = messages[-1]
    is_begun = bool(last["role"] == "assistant" and last["content"] and not last.get("tool_calls"))
    return {"add_generation_prompt": not is_begun, "continue_final_message": is_begun}


class ChatRequest(SamplingFields):
    """OpenAI's chat request. deadline_s, top_k, min_p …, chat_template_kwargs and return_token_ids are extensions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES), AfterValidator(refuse_new_media)]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None
    response_format: ResponseFormat | None = None
    tools: Annotated[
        list[AnyTool] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("function", "custom"))
    ] = None
    tool_choice: AnyChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: Annotated[dict[str, str | bool | int | float | None], Field(max_length=MOST_VARIABLES)] = {}  # noqa: RUF012
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_ids: bool | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None

    @field_validator("chat_template_kwargs", "add_generation_prompt", "continue_final_message", mode="before")
    @classmethod
    def _null_is_the_default(cls, value: Any, info: ValidationInfo) -> Any:
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @model_validator(mode="after")
    def _fits_together(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: set logprobs to true")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt=false")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise ValueError("tool_choice needs tools: give some")
        return self

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None
