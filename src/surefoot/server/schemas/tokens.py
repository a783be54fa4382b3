"""/tokenize and /detokenize, with the fields that vLLM's clients know."""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from surefoot.server.schemas.base import MOST_MESSAGES, MOST_TOOLS, Body, ModelName, Reply, TokenId, tools_of
from surefoot.server.schemas.chat import Message
from surefoot.server.schemas.tools import Tool


class TokenizeRequest(Body):
    """A prompt, or a conversation."""

    model: ModelName | None = None
    prompt: str | None = None
    messages: Annotated[list[Message] | None, Field(min_length=1, max_length=MOST_MESSAGES)] = None
    tools: Annotated[list[Tool] | None, Field(max_length=MOST_TOOLS), BeforeValidator(tools_of("function"))] = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class TokenizeReply(Reply):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Body):
    model: ModelName | None = None
    tokens: Annotated[list[TokenId], Field(max_length=1 << 17)]


class DetokenizeReply(Reply):
    prompt: str


class ModelCard(Reply):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "surefoot"
    max_model_len: int
    state: str = "loaded"  # or unloaded, loading, draining, unloading, where the server has several models


class ModelList(Reply):
    object: str = "list"
    data: list[ModelCard]
