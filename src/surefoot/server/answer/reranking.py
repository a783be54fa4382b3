"""Reranking: documents get scores for a query, each by one prompt."""

import time
import uuid
from typing import Any

from surefoot.api.reranking import Reranker, needed_reranker, ranked
from surefoot.core import Pooling, SamplingParams
from surefoot.server.access.request_context import RequestContext, StreamPosition
from surefoot.server.errors import bad_request
from surefoot.server.schemas.reranking import (
    ApiVersion,
    BilledUnits,
    Document,
    RerankMeta,
    RerankReply,
    RerankRequest,
    RerankResult,
    RerankUsage,
)
from surefoot.server.service import RequestRun, Service

META = RerankMeta(api_version=ApiVersion(version="2"), billed_units=BilledUnits(search_units=1))


async def start_reranking(service: Service, body: RerankRequest, context: RequestContext) -> "Reranking":
    service.check_model(body.model)
    reranker = _reranker(service, body)
    with service.admit(context.caller) as ticket:
        prompts = []
        for document in body.texts:
            prompts.append(await _encode(service, reranker, body, document))
            service.prompts.check_length(ticket.caller, len(prompts[-1]), 1)
        position = StreamPosition.start("", context.request or uuid.uuid4().hex, int(time.time()), 0, len(prompts))
        params = [SamplingParams(max_tokens=1, seed=0)] * len(prompts)
        run = await service.start(
            ticket, context, prompts, params, position, deadline_s=body.deadline_s, pooling=Pooling.LAST
        )
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
            usage=RerankUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
            meta=META,
        )

    async def reply(self) -> dict[str, Any]:
        return (await self.whole()).model_dump(exclude_none=True)
