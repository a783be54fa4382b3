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
from surefoot.server.schemas.vectors import EmbeddingRequest, RerankRequest
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


def _described(run: RequestRun) -> dict[str, Any]:
    """Fields of all replies."""
    usage = {"prompt_tokens": run.num_prompt, "total_tokens": run.num_prompt}
    return {"model": run.service.settings.model_name, "usage": usage}


# ---- embeddings ----


async def start_embeddings(service: Service, body: EmbeddingRequest, context: RequestContext) -> "Embeddings":
    service.check_model(body.model)
    pooling = _pooling(service)
    _check_dimensions(body.dimensions, service.llm.config.width, pooling)
    _check_task(body.task, service.llm.adapter)
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


def _check_task(task: str | None, adapter: str | None) -> None:
    """An adapter is in the weights: a request cannot choose another one."""
    if task is None or task == adapter:
        return
    running = "without an adapter" if adapter is None else f"with the adapter {adapter}"
    raise bad_request(
        f"this model runs {running}: leave task out, or serve its files a second time with the adapter {task}", "task"
    )


class Embeddings:
    def __init__(self, run: RequestRun, body: EmbeddingRequest) -> None:
        self.run = run
        self._body = body

    async def reply(self) -> dict[str, Any]:
        vectors = [unit(output.embedding or (), self._body.dimensions) for output in await self.run.whole()]
        write = packed if self._body.encoding_format == "base64" else list
        data = [{"object": "embedding", "index": index, "embedding": write(v)} for index, v in enumerate(vectors)]
        return {"object": "list", **_described(self.run), "data": data}


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


# ---- reranking ----


async def start_reranking(service: Service, body: RerankRequest, context: RequestContext) -> "Reranking":
    service.check_model(body.model)
    reranker = _reranker(service, body)
    with service.admit(context.caller) as ticket:
        prompts = [await _encode(service, reranker, body, document) for document in body.texts]
        run = await _start(service, ticket, context, prompts, reranker.pooling, body.deadline_s)
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
    return reranker.tokens(await service.prompts.encode(prompt, rendered=True))


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

    async def reply(self) -> dict[str, Any]:
        outputs, texts = await self.run.whole(), self._body.texts
        places = ranked([self._reranker.score(output.embedding or ()) for output in outputs])[: self._body.top_n]
        results: list[dict[str, Any]] = [
            {"index": place.index, "relevance_score": place.relevance_score} for place in places
        ]
        if self._body.return_documents is not False:
            results = [{**result, "document": {"text": texts[result["index"]]}} for result in results]
        head = {"id": self.run.position.request, "object": "list"}
        return {**head, **_described(self.run), "results": results, "meta": META}
