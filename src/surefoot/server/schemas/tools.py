"""Functions that a model may call."""

import json
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag

from surefoot.server.schemas.base import MOST_TOOLS, Body, Lenient
from surefoot.server.schemas.dialects import MOST_GRAMMAR_CHARACTERS

INPUT = "input"  # the one argument of a custom tool
FlatName = Annotated[str, Field(min_length=1, max_length=257, pattern=r"^[a-zA-Z0-9_.:-]+$")]  # NAMESPACE.NAME


def input_schema(**more: str) -> dict[str, Any]:
    """Of the arguments of a custom tool. more: of its input."""
    return {"type": "object", "properties": {INPUT: {"type": "string", **more}}, "required": [INPUT]}


class Function(Lenient):
    name: FlatName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    type: Literal["function"]
    function: Function
    _grammar: "InputGrammar | None" = PrivateAttr(None)  # of a custom tool's input

    @property
    def grammar(self) -> "InputGrammar | None":
        return self._grammar

    def as_function(self) -> "Tool":
        return self


class InputGrammar(Lenient):
    """What the input of a custom tool looks like."""

    syntax: Literal["lark", "regex"] = "lark"
    definition: Annotated[str, Field(min_length=1, max_length=MOST_GRAMMAR_CHARACTERS)]


class TextInput(Lenient):
    type: Literal["text"]


class GrammarInput(Lenient):
    type: Literal["grammar"]
    grammar: InputGrammar


class CustomFunction(Lenient):
    name: FlatName
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None


class CustomTool(Lenient):
    """A tool that is called with free text instead of JSON."""

    type: Literal["custom"]
    custom: CustomFunction

    def as_function(self) -> Tool:
        """A function with one string argument, which the model knows how to call."""
        custom, parameters = self.custom, input_schema(description="The whole input, as plain text.")
        text, grammar = custom.description or "", None
        if isinstance(custom.format, GrammarInput):
            grammar = custom.format.grammar
            text = f"{text}\nThe input follows this grammar ({grammar.syntax}):\n{grammar.definition}".lstrip()
        function = Function(name=custom.name, description=text or None, parameters=parameters)
        tool = Tool(type="function", function=function)
        tool._grammar = grammar
        return tool


AnyTool = Annotated[Tool | CustomTool, Field(discriminator="type")]


class NamedFunction(Body):
    name: FlatName


class NamedChoice(Body):
    type: Literal["function"]
    function: NamedFunction


class CustomChoice(Body):
    type: Literal["custom"]
    custom: NamedFunction


class AllowedTool(Lenient):
    """A tool that may be called; another server's own tools have other keys."""

    type: Annotated[str, Field(max_length=64)]
    function: NamedFunction | None = None
    custom: NamedFunction | None = None

    @property
    def name(self) -> str | None:
        named = self.function or self.custom
        return named.name if named is not None else None


class AllowedTools(Body):
    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Field(max_length=MOST_TOOLS)]


class AllowedChoice(Body):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | NamedChoice
ChosenForm = Annotated[NamedChoice | CustomChoice | AllowedChoice, Field(discriminator="type")]
AnyChoice = Literal["none", "auto", "required"] | ChosenForm


class CalledFunction(Lenient):
    name: FlatName
    arguments: str


class CalledCustom(Lenient):
    name: FlatName
    input: str


class ToolCall(Lenient):
    id: Annotated[str, Field(max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class CustomCall(Lenient):
    id: Annotated[str, Field(max_length=128)]
    type: Literal["custom"]
    custom: CalledCustom

    def as_function(self) -> ToolCall:
        arguments = json.dumps({INPUT: self.custom.input})
        return ToolCall(id=self.id, function=CalledFunction(name=self.custom.name, arguments=arguments))


def _kind(call: Any) -> Any:
    """A call's type; a call without one is of a function."""
    return call.get("type", "function") if isinstance(call, dict) else getattr(call, "type", None)


AnyCall = Annotated[
    Annotated[ToolCall, Tag("function")] | Annotated[CustomCall, Tag("custom")],
    Discriminator(_kind, custom_error_type="unknown_call", custom_error_message="a call is of type function or custom"),
]
