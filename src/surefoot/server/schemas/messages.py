"""Anthropic's /v1/messages."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from surefoot.server.schemas.base import (
    MOST_MESSAGES,
    MOST_STOPS,
    MOST_TOOLS,
    Body,
    Lenient,
    ModelName,
    Name,
    Positive,
    RequestBody,
    StopString,
    Whole,
    tools_of,
)
from surefoot.server.schemas.chat import ChatRequest, begins, refuse_new_media, text_of
from surefoot.server.schemas.message_blocks import (
    AnyBlock,
    SourceBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

Json = dict[str, Any]
# Claude Code heads its system text with a line of its own, which differs from session to session and says nothing to a
# model: with it no prefix would ever be found in the cache.
_BILLING = re.compile(r"x-anthropic-billing-header:[^\n]*\n*")


class MessageParam(Lenient):
    role: Literal["user", "assistant", "system"]
    content: str | list[AnyBlock]


Messages = Annotated[
    list[MessageParam], Field(min_length=1, max_length=MOST_MESSAGES), AfterValidator(refuse_new_media)
]
System = str | list[SourceBlock]


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


class CountRequest(RequestBody):
    """/v1/messages/count_tokens: what a prompt is made of."""

    model: ModelName | None = None
    messages: Messages
    system: System | None = None
    tools: Annotated[list[ToolParam] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("custom"))] = None
    tool_choice: ToolChoiceParam | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    normalise: bool = True  # leave out what agents change without meaning; an extension

    def as_chat(self) -> ChatRequest:
        return ChatRequest.model_validate(self._prompt_fields())

    def _prompt_fields(self) -> Json:
        """Fields of a chat request."""
        messages = [{"role": "system", "content": text} for text in self._system_texts()]
        for message in self.messages:
            messages += _as_openai(message)
        choice, wanted = self.tool_choice, self.output_config.format if self.output_config is not None else None
        return {
            "model": self.model,
            "messages": messages,
            **begins(messages),
            "tools": [_tool(tool) for tool in self.tools or ()] or None,
            "tool_choice": _choice(choice) if self.tools else None,
            "parallel_tool_calls": None if choice is None else not choice.disable_parallel_tool_use,
            "reasoning_effort": self._effort(),
            "response_format": wanted and {"type": "json_schema", "json_schema": {"schema": wanted.schema_}},
        }

    def _effort(self) -> str | None:
        if self.thinking is not None and self.thinking.type == "disabled":
            return "none"
        return self.output_config.effort if self.output_config is not None else None

    def _system_texts(self) -> list[str]:
        """One text. Of several blocks beside tools, two: templates write tools after the first system message, and what
        Claude Code says of the folder would stand before them. This API's own order is tools, then system."""
        blocks = [self.system] if isinstance(self.system, str) else [block.text for block in self.system or ()]
        blocks[:1] = [block[self.num_left_out :] for block in blocks[:1]]
        first, *later = [block for block in blocks if block] or [""]
        texts = [first, "".join(later)] if self.tools and self.normalise else [first + "".join(later)]
        return [text for text in texts if text]

    @property
    def num_left_out(self) -> int:
        """Characters at the head of the system text that the model does not get."""
        head = self.system if isinstance(self.system, str) else text_of((self.system or [])[:1])
        match = _BILLING.match(head) if self.normalise else None
        return match.end() if match is not None else 0


class MessagesRequest(CountRequest):
    max_tokens: Positive
    stop_sequences: Annotated[list[StopString] | None, Field(max_length=MOST_STOPS)] = None
    stream: bool | None = None
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only", "flex"] | None = None  # flex, an extension: when nobody waits

    def _prompt_fields(self) -> Json:
        return {
            **super()._prompt_fields(),
            **self.model_dump(include={"max_tokens", "stream", "temperature", "top_p", "top_k"}),
            "stop": self.stop_sequences or None,
            "service_tier": "flex" if self.service_tier == "flex" else None,
        }


def _tool(tool: ToolParam) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _choice(choice: ToolChoiceParam | None) -> str | Json:
    if choice is None or choice.type in ("auto", "none"):
        return "auto" if choice is None else choice.type
    return "required" if choice.type == "any" else {"type": "function", "function": {"name": choice.name or "?"}}


def _as_openai(message: MessageParam) -> list[Json]:
    """The message in OpenAI's form: tool results become messages of their own, before the user's text."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    results, calls, text, thinking = list[Json](), list[Json](), "", ""
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            content = text_of(block.content or "")
            results.append({"role": "tool", "content": content, "tool_call_id": block.tool_use_id})
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            thinking += block.thinking
        else:
            text += block.text
    if not text and not calls and results:
        return results
    own = {"role": message.role, "content": text, "tool_calls": calls or None, "reasoning_content": thinking or None}
    return [*results, own]
