"""/v1/responses, without what needs memory of earlier responses."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from surefoot.server.schemas.base import (
    MOST_LOGPROBS,
    MOST_MESSAGES,
    MOST_TOOLS,
    Body,
    JsonObjectFormat,
    JsonSchema,
    JsonSchemaFormat,
    Lenient,
    ModelName,
    Name,
    Positive,
    RequestBody,
    ResponseFormat,
    StreamOptions,
    TextFormat,
    refuse_media,
    tools_of,
)
from surefoot.server.schemas.chat import ChatRequest, Effort, Message
from surefoot.server.schemas.tools import (
    CalledFunction,
    Function,
    NamedChoice,
    NamedFunction,
    Tool,
    ToolCall,
    ToolChoice,
)

Id = Annotated[str, Field(max_length=128)]


class RefusalContent(Lenient):
    type: Literal["refusal"]
    refusal: str


class TextContent(Lenient):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


AnyContent = Annotated[TextContent | RefusalContent, Field(discriminator="type"), BeforeValidator(refuse_media)]


class MessageItem(Lenient):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[AnyContent]


class CallItem(Lenient):
    type: Literal["function_call"]
    call_id: Id
    name: Name
    arguments: str


class CallOutputItem(Lenient):
    type: Literal["function_call_output"]
    call_id: Id
    output: str | list[AnyContent]


class ReasoningItem(Lenient):
    """Earlier reasoning, which is not sent back to the model."""

    type: Literal["reasoning"]


def _kind(item: Any) -> Any:
    """The item's type; an item without one is a message."""
    return item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)


Item = Annotated[
    Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[MessageItem, Tag("message")],
    Discriminator(
        _kind,
        custom_error_type="unknown_item",
        custom_error_message="an item is a message, function_call, function_call_output or reasoning",
    ),
]


class FunctionTool(Lenient):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChosenTool(Body):
    type: Literal["function"]
    name: Name


class JsonSchemaText(JsonSchema):
    type: Literal["json_schema"]


class Text(Body):
    format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaText, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Body):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class ResponsesRequest(RequestBody):
    """OpenAI's request for a response. seed, top_k and min_p are extensions."""

    model: ModelName | None = None
    input: str | Annotated[list[Item], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[FunctionTool] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("function"))] = (
        None
    )
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    metadata: Annotated[dict[str, str] | None, Field(max_length=16)] = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    include: Annotated[list[str] | None, Field(max_length=16)] = None
    user: Annotated[str | None, Field(max_length=256)] = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: Literal[False] | None = None
    seed: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None
    top_k: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None

    @model_validator(mode="after")
    def _needs_no_memory(self) -> "ResponsesRequest":
        if self.previous_response_id is not None:
            raise ValueError("previous_response_id: responses are not kept here, send the whole conversation as input")
        if self.conversation is not None:
            raise ValueError("conversation: conversations are not kept here, send the whole of it as input")
        return self

    def as_chat(self) -> ChatRequest:
        return ChatRequest(
            model=self.model,
            messages=self._messages(),
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            stream=self.stream,
            tools=[_tool(tool) for tool in self.tools or ()] or None,
            tool_choice=_choice(self.tool_choice) if self.tools else None,
            parallel_tool_calls=self.parallel_tool_calls,
            response_format=_format(self.text),
            reasoning_effort=self.reasoning.effort if self.reasoning is not None else None,
            service_tier=self.service_tier,
        )

    def _messages(self) -> list[Message]:
        messages = [Message(role="system", content=self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            return [*messages, Message(role="user", content=self.input)]
        for item in self.input:
            _add(messages, item)
        return messages


def _tool(tool: FunctionTool) -> Tool:
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters)
    return Tool(type="function", function=function)


def _choice(choice: Literal["none", "auto", "required"] | ChosenTool | None) -> ToolChoice | None:
    if not isinstance(choice, ChosenTool):
        return choice
    return NamedChoice(type="function", function=NamedFunction(name=choice.name))


def _format(text: Text | None) -> ResponseFormat | None:
    wanted = text.format if text is not None else None
    if isinstance(wanted, JsonSchemaText):
        return JsonSchemaFormat(type="json_schema", json_schema=JsonSchema(name=wanted.name, schema=wanted.schema_))
    return wanted


def _text(content: str | list[AnyContent]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text if isinstance(part, TextContent) else part.refusal for part in content)


def _add(messages: list[Message], item: Item) -> None:
    """Append an item. Calls join the assistant's message before them; reasoning is not sent back to the model."""
    if isinstance(item, MessageItem):
        messages.append(Message(role=item.role, content=_text(item.content)))
    elif isinstance(item, CallOutputItem):
        messages.append(Message(role="tool", content=_text(item.output), tool_call_id=item.call_id))
    elif isinstance(item, CallItem):
        call = ToolCall(id=item.call_id, function=CalledFunction(name=item.name, arguments=item.arguments))
        if messages and messages[-1].role == "assistant":
            messages[-1].tool_calls = [*(messages[-1].tool_calls or ()), call]
        else:
            messages.append(Message(role="assistant", content="", tool_calls=[call]))
