"""/v1/rerank, as Jina's, Cohere's and vLLM's clients send it."""

from typing import Annotated, Literal

from pydantic import Field

from surefoot.server.schemas.base import Lenient, ModelName, Positive, Reply, RequestBody

MOST_DOCUMENTS = 1000
MOST_INSTRUCTION_CHARACTERS = 4096


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
    deadline_s: Annotated[float | None, Field(gt=0, le=86400)] = None

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


class RerankUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class BilledUnits(Reply):
    search_units: int


class ApiVersion(Reply):
    version: str


class RerankMeta(Reply):
    """What Cohere's clients read."""

    api_version: ApiVersion
    billed_units: BilledUnits


class RerankReply(Reply):
    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RerankResult]  # highest score first
    usage: RerankUsage
    meta: RerankMeta
