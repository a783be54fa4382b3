"""/v1/responses, without what needs memory of earlier responses."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, model_validator

from surefoot.server.schemas.base import (
    KNOWN,
    MOST_LOGPROBS,
    MOST_MESSAGES,
    MOST_TOOLS,
    OTHER,
    Body,
    GeneratingFields,
    JsonObjectFormat,
    JsonSchema,
    Lenient,
    Name,
    Positive,
    TextFormat,
    by_type,
    tools_of,
)
from surefoot.server.schemas.chat import ChatRequest, Effort, MediaPart, RefusalPart, refuse_new_media, text_of
from surefoot.server.schemas.dialects import note_kind
from surefoot.server.schemas.tools import INPUT, Function, InputGrammar, TextInput

Json = dict[str, Any]
Id = Annotated[str, Field(max_length=128)]


class TextContent(Lenient):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


AnyContent = Annotated[TextContent | RefusalPart | MediaPart, Field(discriminator="type")]


class MessageItem(Lenient):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[AnyContent]


class CallItem(Lenient):
    type: Literal["function_call"]
    call_id: Id
    name: Name
    arguments: str
    namespace: Name | None = None


class CustomCallItem(Lenient):
    type: Literal["custom_tool_call"]
    call_id: Id
    name: Name
    input: str
    namespace: Name | None = None

    @property
    def arguments(self) -> str:
        return json.dumps({INPUT: self.input})


class ShellAction(Lenient):
    command: list[str] = []  # noqa: RUF012
    commands: list[str] = []  # noqa: RUF012


class ShellCallItem(Lenient):
    """OpenAI's own shell tools."""

    type: Literal["local_shell_call", "shell_call"]
    call_id: Id | None = None
    action: ShellAction

    @property
    def name(self) -> str:
        return self.type.removesuffix("_call")

    @property
    def arguments(self) -> str:
        return json.dumps({"command": self.action.command or self.action.commands})


class ShellOutput(Lenient):
    stdout: str = ""
    stderr: str = ""

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


class CallOutputItem(Lenient):
    type: Literal["function_call_output", "custom_tool_call_output", "local_shell_call_output"]
    call_id: Id | None = None
    id: Id | None = None
    output: str | list[AnyContent]


class ShellOutputItem(Lenient):
    type: Literal["shell_call_output"]
    call_id: Id
    id: Id | None = None
    output: list[ShellOutput]


class ReasoningItem(Lenient):
    """Earlier reasoning. Its text goes to the template, which keeps or drops it."""

    type: Literal["reasoning"]
    summary: list[TextContent] = []  # noqa: RUF012
    content: list[TextContent] | None = None

    @property
    def text(self) -> str:
        return text_of(self.content or self.summary)


class SearchAction(Lenient):
    type: Annotated[str, Field(max_length=64)] = ""
    query: str | None = None
    url: str | None = None


class SearchItem(Lenient):
    """A search that another server ran; what it found is not in the item."""

    type: Literal["web_search_call"]
    action: SearchAction | None = None

    @property
    def text(self) -> str:
        action = self.action or SearchAction()
        return f"[web_search: {action.query or action.url or action.type}]"


class UnreadableItem(Lenient):
    """What only the server that wrote it can read: an encrypted summary, a reference to an item that it keeps."""

    type: Literal["compaction", "compaction_summary", "context_compaction", "item_reference"]

    @property
    def text(self) -> str:
        return f"[{self.type}: kept on another server, and not read here]"


class OtherItem(Lenient):
    """An item of a kind that this server does not know: it is left out and named in the Warning header."""

    type: Annotated[str, Field(max_length=64)]

    @model_validator(mode="after")
    def _is_noted(self) -> "OtherItem":
        note_kind("item", self.type)
        return self


def _untyped(item: dict[str, Any]) -> str | None:
    return "message" if "type" not in item else None


_Known = (
    MessageItem | CallItem | CustomCallItem | ShellCallItem | CallOutputItem | ShellOutputItem | ReasoningItem
    | SearchItem | UnreadableItem
)  # fmt: skip
Item = Annotated[
    Annotated[_Known, Field(discriminator="type"), Tag(KNOWN)]
    | Annotated[MessageItem, Tag("message")]
    | Annotated[OtherItem, Tag(OTHER)],
    by_type(_Known, "an item", _untyped),
]


class FunctionTool(Function):
    type: Literal["function"]
    name: Name


class FlatGrammar(InputGrammar):
    type: Literal["grammar"]


class CustomFreeTool(Lenient):
    """A tool that is called with free text."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: Annotated[TextInput | FlatGrammar, Field(discriminator="type")] | None = None


InnerTool = Annotated[FunctionTool | CustomFreeTool, Field(discriminator="type")]


class NamespaceTool(Lenient):
    """Several tools under one name."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[InnerTool], Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("function", "custom"))]


ResponseTool = Annotated[FunctionTool | CustomFreeTool | NamespaceTool, Field(discriminator="type")]


class ChosenTool(Body):
    type: Literal["function", "custom"]
    name: Name
    namespace: Name | None = None


class AllowedName(Lenient):
    """A tool that may be called. One of another kind has no name."""

    name: Name | None = None
    namespace: Name | None = None


class AllowedNames(Body):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedName], Field(max_length=MOST_TOOLS)]


Choice = Literal["none", "auto", "required"] | Annotated[ChosenTool | AllowedNames, Field(discriminator="type")]


class JsonSchemaText(JsonSchema):
    type: Literal["json_schema"]


class Text(Body):
    format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaText, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Body):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class ResponsesRequest(GeneratingFields):
    """OpenAI's request for a response. seed, too, is an extension."""

    input: str | Annotated[list[Item], Field(min_length=1, max_length=MOST_MESSAGES), AfterValidator(refuse_new_media)]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None
    tools: Annotated[
        list[ResponseTool] | None,
        Field(max_length=MOST_TOOLS),
        BeforeValidator(tools_of("function", "custom", "namespace")),
    ] = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    metadata: Annotated[dict[str, str] | None, Field(max_length=16)] = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    include: Annotated[list[str] | None, Field(max_length=16)] = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: Literal[False] | None = None

    @model_validator(mode="after")
    def _needs_no_memory(self) -> "ResponsesRequest":
        if self.previous_response_id is not None:
            raise ValueError("previous_response_id: responses are not kept here, send the whole conversation as input")
        if self.conversation is not None:
            raise ValueError("conversation: conversations are not kept here, send the whole of it as input")
        return self

    def as_chat(self) -> ChatRequest:
        names = {"model", "temperature", "top_p", "top_k", "min_p", "seed", "stream"}
        return ChatRequest.model_validate(
            {
                **self.model_dump(include=names | {"parallel_tool_calls", "service_tier"}),
                "messages": self._messages(),
                "max_completion_tokens": self.max_output_tokens,
                "tools": [_tool(tool, flat_name(space, tool.name)) for space, tool in self._named_tools()] or None,
                "tool_choice": _choice(self.tool_choice) if self.tools else None,
                "response_format": _format(self.text),
                "reasoning_effort": self.reasoning.effort if self.reasoning is not None else None,
            }
        )

    def names(self) -> dict[str, tuple[str, str]]:
        """Namespace and name of each tool in a namespace, by the name that the model has for it: that has both."""
        named = [(space, tool.name) for space, tool in self._named_tools() if space is not None]
        return {flat_name(space, name): (space, name) for space, name in named}

    def _named_tools(self) -> Iterator[tuple[str | None, FunctionTool | CustomFreeTool]]:
        for tool in self.tools or ():
            if isinstance(tool, NamespaceTool):
                yield from ((tool.name, inner) for inner in tool.tools)
            else:
                yield None, tool

    def _messages(self) -> list[Json]:
        messages = [{"role": "system", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return [*messages, {"role": "user", "content": self.input}]
        for item in self.input:
            _add(messages, item)
        return messages


def flat_name(namespace: str | None, name: str) -> str:
    return name if namespace is None else f"{namespace}.{name}"


def _tool(tool: FunctionTool | CustomFreeTool, name: str) -> Json:
    fields = {**tool.model_dump(exclude={"type", "strict"}), "name": name}
    if isinstance(tool, CustomFreeTool) and isinstance(tool.format, FlatGrammar):
        fields["format"] = {"type": "grammar", "grammar": fields["format"]}
    return {"type": tool.type, tool.type: fields}


def _choice(choice: Choice | None) -> str | Json | None:
    if isinstance(choice, AllowedNames):
        named = [_named(tool.namespace, tool.name) for tool in choice.tools if tool.name is not None]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": named}}
    return _named(choice.namespace, choice.name) if isinstance(choice, ChosenTool) else choice


def _named(namespace: str | None, name: str) -> Json:
    return {"type": "function", "function": {"name": flat_name(namespace, name)}}


def _format(text: Text | None) -> Json | None:
    if text is None or text.format is None:
        return None
    if not isinstance(text.format, JsonSchemaText):
        return {"type": text.format.type}
    return {"type": "json_schema", "json_schema": {"name": text.format.name, "schema": text.format.schema_}}


def _add(messages: list[Json], item: Item) -> None:
    """Append an item. What the assistant thought, said and called without anything between is one message."""
    if isinstance(item, MessageItem) and item.role != "assistant":
        messages.append({"role": item.role, "content": text_of(item.content)})
    elif isinstance(item, CallOutputItem | ShellOutputItem):
        output = text_of(item.output)
        messages.append({"role": "tool", "content": output, "tool_call_id": item.call_id or item.id})
    elif isinstance(item, ReasoningItem):
        if item.text:
            messages.append({"role": "assistant", "content": "", "reasoning_content": item.text})
    elif not isinstance(item, OtherItem):
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else {}
        is_said = isinstance(item, MessageItem | SearchItem | UnreadableItem)
        if not last or (is_said and (last["content"] or "tool_calls" in last)):
            last = {"role": "assistant", "content": ""}
            messages.append(last)
        if isinstance(item, MessageItem | SearchItem | UnreadableItem):
            last["content"] = text_of(item.content) if isinstance(item, MessageItem) else item.text
        else:
            name = item.name if isinstance(item, ShellCallItem) else flat_name(item.namespace, item.name)
            call = {"id": item.call_id or "?", "function": {"name": name, "arguments": item.arguments}}
            last.setdefault("tool_calls", []).append(call)
