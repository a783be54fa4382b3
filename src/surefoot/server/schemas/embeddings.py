"""/v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from surefoot.server.schemas.base import ModelName, Positive, Reply, RequestBody
from surefoot.server.schemas.completions import Tokens, listed

MOST_INPUTS = 256


class EmbeddingRequest(RequestBody):
    model: ModelName | None = None
    input: str | Tokens | Annotated[list[str | Tokens], Field(min_length=1, max_length=MOST_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    user: Annotated[str | None, Field(max_length=256)] = None
    deadline_s: Annotated[float | None, Field(gt=0, le=86400)] = None

    def inputs(self) -> list[str | list[int]]:
        return listed(self.input)


class Embedding(Reply):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str  # numbers, or little-endian float32 in base64


class EmbeddingUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(Reply):
    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage
