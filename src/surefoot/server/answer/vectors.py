"""Prompts that become vectors: embeddings, and scores of documents for a query."""

import base64
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from surefoot.api.pooling import PoolingConfig, embedding_pooling, unit
from surefoot.api.reranking import Reranker, needed_reranker, ranked
from surefoot.core import Pooling, SamplingParams
from surefoot.server.access.request_context import RequestContext, StreamPosition
from surefoot.server.access.shares import Ticket
from surefoot.server.errors import bad_request
from surefoot.server.schemas.vectors import (
    Document,
    Embedding,
    EmbeddingReply,
    EmbeddingRequest,
    PromptUsage,
    RerankReply,
    RerankRequest,
    RerankResult,
)
from surefoot.server.service import RequestRun, Service

META = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}


async def _start(
    service: Service,
    ticket: Ticket,
    context: RequestContext,
    prompts: Sequence[Sequence[int]],
    pooling: Pooling,
    deadline_s: float | None,
) -> RequestRun:
    for prompt in prompts:
        service.prompts.check_length(ticket.caller, len(prompt), 1)
    position = StreamPosition.start("", context.request or uuid.uuid4().hex, int(time.time()), 0, len(prompts))
    params = [SamplingParams(max_tokens=1, seed=0)] * len(prompts)
    return await service.start(ticket, context, prompts, params, position, deadline_s=deadline_s, pooling=pooling)


# ---- embeddings ----


async def start_embeddings(service: Service, body: EmbeddingRequest, context: RequestContext) -> "Embeddings":
    service.check_model(body.model)
    pooling = _pooling(service)
    _check_dimensions(body.dimensions, service.llm.config.width, pooling)
    with service.admit(context.caller) as ticket:
        prompts = [await service.prompts.encode(text) if isinstance(text, str) else text for text in body.inputs()]
        for prompt in prompts:
            service.prompts.check_tokens(prompt, "input")
        run = await _start(service, ticket, context, prompts, pooling.pooling, body.deadline_s)
    return Embeddings(run, body)


def _pooling(service: Service) -> PoolingConfig:
    try:
        return embedding_pooling(service.llm.pooling)
    except ValueError as error:
        raise bad_request(str(error), "model", "no_embeddings") from error


def _check_dimensions(dimensions: int | None, width: int, pooling: PoolingConfig) -> None:
    """Only an embedding model may have been trained so that the first dimensions stand for the whole vector."""
    if dimensions is None or dimensions == width or (pooling.is_named and dimensions < width):
        return
    advice = f"ask for {width} or fewer" if pooling.is_named else "leave dimensions out"
    raise bad_request(f"this model's vectors have {width} dimensions: {advice}", "dimensions")


class Embeddings:
    def __init__(self, run: RequestRun, body: EmbeddingRequest) -> None:
        self.run = run
        self._body = body

    async def whole(self) -> EmbeddingReply:
        outputs, data = await self.run.whole(), list[Embedding]()
        for index, output in enumerate(outputs):
            assert output.embedding is not None
            vector = unit(output.embedding, self._body.dimensions)
            encoded = packed(vector) if self._body.encoding_format == "base64" else list(vector)
            data.append(Embedding(index=index, embedding=encoded))
        num_tokens = sum(output.usage.num_prompt for output in outputs)
        usage = PromptUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        return EmbeddingReply(model=self.run.service.settings.model_name, data=data, usage=usage)

    async def reply(self) -> dict[str, Any]:
        return (await self.whole()).model_dump()


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


# ---- reranking ----


async def start_reranking(service: Service, body: RerankRequest, context: RequestContext) -> "Reranking":
    service.check_model(body.model)
    reranker = _reranker(service, body)
    with service.admit(context.caller) as ticket:
        prompts = [await _encode(service, reranker, body, document) for document in body.texts]
        run = await _start(service, ticket, context, prompts, Pooling.LAST, body.deadline_s)
    return Reranking(run, body, reranker)


def _reranker(service: Service, body: RerankRequest) -> Reranker:
    try:
        reranker = needed_reranker(service.llm.reranker)
    except ValueError as error:
        raise bad_request(str(error), "model", "no_reranker") from error
    if body.instruction is not None and not reranker.takes_instruction:
        raise bad_request("this model's template has no place for an instruction: leave it out", "instruction")
    return reranker


async def _encode(service: Service, reranker: Reranker, body: RerankRequest, document: str) -> list[int]:
    if body.max_tokens_per_doc is not None:
        document = await _shortened(service, document, body.max_tokens_per_doc)
    prompt = reranker.prompt(service.llm.tokenizer, body.query_text, document, body.instruction)
    return await service.prompts.encode(prompt, rendered=True)


async def _shortened(service: Service, document: str, max_tokens: int) -> str:
    """The text of the document's first tokens, without a character that is cut in half."""
    tokens = await service.prompts.encode(document, add_special=False)
    if len(tokens) <= max_tokens:
        return document
    return service.llm.tokenizer.decode(tokens[:max_tokens], skip_special=False).rstrip("\ufffd")


class Reranking:
    def __init__(self, run: RequestRun, body: RerankRequest, reranker: Reranker) -> None:
        self.run = run
        self._body = body
        self._reranker = reranker

    async def whole(self) -> RerankReply:
        outputs, texts = await self.run.whole(), self._body.texts
        places = ranked([self._reranker.score(output.embedding or ()) for output in outputs])[: self._body.top_n]
        num_tokens = sum(output.usage.num_prompt for output in outputs)
        return RerankReply(
            id=self.run.position.request,
            model=self.run.service.settings.model_name,
            results=[
                RerankResult(
                    index=place.index,
                    relevance_score=place.relevance_score,
                    document=Document(text=texts[place.index]) if self._body.return_documents is not False else None,
                )
                for place in places
            ],
            usage=PromptUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
            meta=META,
        )

    async def reply(self) -> dict[str, Any]:
        return (await self.whole()).model_dump(exclude_none=True)
