"""/v1/embeddings; and /v1/rerank, as Jina's, Cohere's and vLLM's clients send it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from surefoot.server.schemas.base import Deadline, Lenient, ModelName, Positive, Reply, RequestBody
from surefoot.server.schemas.completions import Tokens, listed

MOST_INPUTS = 256
MOST_DOCUMENTS = 1000
MOST_INSTRUCTION_CHARACTERS = 4096


class PromptUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class EmbeddingRequest(RequestBody):
    model: ModelName | None = None
    input: str | Tokens | Annotated[list[str | Tokens], Field(min_length=1, max_length=MOST_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    task: Annotated[str | None, Field(max_length=256)] = None  # as Jina's clients name the adapter
    user: Annotated[str | None, Field(max_length=256)] = None
    deadline_s: Deadline = None

    def inputs(self) -> list[str | list[int]]:
        return listed(self.input)


class Embedding(Reply):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str  # numbers, or little-endian float32 in base64


class EmbeddingReply(Reply):
    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: PromptUsage


class Document(Lenient):
    """A document as an object; fields besides its text are dropped."""

    text: str


class RerankRequest(RequestBody):
    model: ModelName | None = None
    query: str | Document
    documents: Annotated[list[str | Document], Field(min_length=1, max_length=MOST_DOCUMENTS)]
    top_n: Positive | None = None
    return_documents: bool | None = True
    max_tokens_per_doc: Positive | None = None
    instruction: Annotated[str | None, Field(min_length=1, max_length=MOST_INSTRUCTION_CHARACTERS)] = None
    deadline_s: Deadline = None

    @property
    def query_text(self) -> str:
        return _text(self.query)

    @property
    def texts(self) -> list[str]:
        return [_text(document) for document in self.documents]


def _text(document: str | Document) -> str:
    return document if isinstance(document, str) else document.text


class RerankResult(Reply):
    index: int  # of the document
    relevance_score: float
    document: Document | None = None  # unless return_documents is false


class RerankReply(Reply):
    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RerankResult]  # highest score first
    usage: PromptUsage
    meta: dict[str, Any]  # what Cohere's clients read
