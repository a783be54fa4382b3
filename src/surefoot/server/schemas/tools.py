"""Functions that a model may call."""

from typing import Annotated, Any, Literal

from pydantic import Field

from surefoot.server.schemas.base import Body, Lenient, Name


class Function(Lenient):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    name: Name


class NamedChoice(Body):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedChoice


class CalledFunction(Lenient):
    name: Name
    arguments: str


class ToolCall(Lenient):
    id: Annotated[str, Field(max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None
