"""Anthropic's /v1/messages."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from surefoot.server.schemas.base import (
    MOST_MESSAGES,
    MOST_STOPS,
    MOST_TOOLS,
    Body,
    JsonSchema,
    JsonSchemaFormat,
    Lenient,
    ModelName,
    Name,
    Positive,
    RequestBody,
    StopString,
    Whole,
    refuse_media,
    tools_of,
)
from surefoot.server.schemas.chat import ChatRequest, Effort, Message
from surefoot.server.schemas.tools import Function, NamedChoice, NamedFunction, Tool, ToolCall, ToolChoice


class TextBlock(Lenient):
    type: Literal["text"]
    text: str


OnlyText = Annotated[TextBlock, BeforeValidator(refuse_media)]


class ToolUseBlock(Lenient):
    type: Literal["tool_use"]
    id: Annotated[str, Field(max_length=128)]
    name: Name
    input: dict[str, Any]


class ToolResultBlock(Lenient):
    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(max_length=128)]
    content: str | list[OnlyText] = ""
    is_error: bool | None = None


class ThinkingBlock(Lenient):
    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Lenient):
    """Encrypted by another server: it cannot be read here."""

    type: Literal["redacted_thinking"]


AnyBlock = Annotated[
    TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock,
    Field(discriminator="type"),
    BeforeValidator(refuse_media),
]


class MessageParam(Lenient):
    role: Literal["user", "assistant"]
    content: str | list[AnyBlock]


class ToolParam(Lenient):
    type: Literal["custom"] | None = None
    name: Name
    description: str | None = None
    input_schema: dict[str, Any]


class ToolChoiceParam(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Whole | None = None
    display: str | None = None


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Metadata(Body):
    user_id: Annotated[str | None, Field(max_length=1024)] = None


class MessagesRequest(RequestBody):
    model: ModelName | None = None
    max_tokens: Positive
    messages: Annotated[list[MessageParam], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: str | list[OnlyText] | None = None
    stop_sequences: Annotated[list[StopString] | None, Field(max_length=MOST_STOPS)] = None
    stream: bool | None = None
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    tools: Annotated[list[ToolParam] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("custom"))] = None
    tool_choice: ToolChoiceParam | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    def as_chat(self) -> ChatRequest:
        choice, messages = self.tool_choice, self._messages()
        is_begun = messages[-1].is_begun
        return ChatRequest(
            model=self.model,
            messages=messages,
            add_generation_prompt=not is_begun,
            continue_final_message=is_begun,
            max_tokens=self.max_tokens,
            stop=self.stop_sequences or None,
            stream=self.stream,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            tools=[_tool(tool) for tool in self.tools or ()] or None,
            tool_choice=_choice(choice) if self.tools else None,
            parallel_tool_calls=None if choice is None else not choice.disable_parallel_tool_use,
            reasoning_effort=self._effort(),
            response_format=_format(self.output_config),
        )

    def _effort(self) -> Effort | None:
        if self.thinking is not None and self.thinking.type == "disabled":
            return "none"
        return self.output_config.effort if self.output_config is not None else None

    def _messages(self) -> list[Message]:
        messages = [Message(role="system", content=_text(self.system))] if self.system else []
        for message in self.messages:
            messages += _as_openai(message)
        return messages


class CountRequest(RequestBody):
    """/v1/messages/count_tokens."""

    model: ModelName | None = None
    messages: Annotated[list[MessageParam], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: str | list[OnlyText] | None = None
    tools: Annotated[list[ToolParam] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("custom"))] = None
    tool_choice: ToolChoiceParam | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    def as_chat(self) -> ChatRequest:
        return MessagesRequest(
            **{name: getattr(self, name) for name in type(self).model_fields}, max_tokens=1
        ).as_chat()


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _format(config: OutputConfig | None) -> JsonSchemaFormat | None:
    if config is None or config.format is None:
        return None
    return JsonSchemaFormat(type="json_schema", json_schema=JsonSchema(schema=config.format.schema_))


def _tool(tool: ToolParam) -> Tool:
    function = Function(name=tool.name, description=tool.description, parameters=tool.input_schema)
    return Tool(type="function", function=function)


def _choice(choice: ToolChoiceParam | None) -> ToolChoice:
    if choice is None or choice.type in ("auto", "none"):
        return "auto" if choice is None or choice.type == "auto" else "none"
    if choice.type == "any":
        return "required"
    return NamedChoice(type="function", function=NamedFunction(name=choice.name or "?"))


def _as_openai(message: MessageParam) -> list[Message]:
    """The message in OpenAI's form: tool results become messages of their own, before the user's text."""
    if isinstance(message.content, str):
        return [Message(role=message.role, content=message.content)]
    results, calls, text, thinking = [], [], "", ""
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(Message(role="tool", content=_text(block.content), tool_call_id=block.tool_use_id))
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            calls.append(ToolCall.model_validate({"id": block.id, "function": function}))
        elif isinstance(block, TextBlock):
            text += block.text
        elif isinstance(block, ThinkingBlock):
            thinking += block.thinking
    if not text and not calls and results:
        return results
    own = Message(role=message.role, content=text, tool_calls=calls or None, reasoning_content=thinking or None)
    return [*results, own]
