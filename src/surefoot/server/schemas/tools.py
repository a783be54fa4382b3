"""Functions that a model may call."""

from typing import Annotated, Any, Literal

from pydantic import Field

from surefoot.server.schemas.base import Body, Name


class Function(Body):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    name: Name


class NamedChoice(Body):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedChoice


class CalledFunction(Body):
    name: Name
    arguments: str


class ToolCall(Body):
    id: Annotated[str, Field(max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None
