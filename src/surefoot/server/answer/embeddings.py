"""Embeddings: texts or token ids become vectors of unit length."""

import base64
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from surefoot.api.pooling import PoolingConfig, embedding_pooling, unit
from surefoot.core import SamplingParams
from surefoot.server.access.request_context import RequestContext, StreamPosition
from surefoot.server.errors import bad_request
from surefoot.server.schemas.embeddings import Embedding, EmbeddingReply, EmbeddingRequest, EmbeddingUsage
from surefoot.server.service import RequestRun, Service


async def start_embeddings(service: Service, body: EmbeddingRequest, context: RequestContext) -> "Embeddings":
    service.check_model(body.model)
    pooling, inputs = _pooling(service), body.inputs()
    _check_dimensions(body.dimensions, service.llm.config.width, pooling)
    with service.admit(context.caller) as ticket:
        prompts = [await service.prompts.encode(text) if isinstance(text, str) else text for text in inputs]
        for prompt in prompts:
            service.prompts.check_tokens(prompt, "input")
            service.prompts.check_length(ticket.caller, len(prompt), 1)
        position = StreamPosition.start("", context.request or uuid.uuid4().hex, int(time.time()), 0, len(prompts))
        params = [SamplingParams(max_tokens=1, seed=0)] * len(prompts)
        run = await service.start(
            ticket, context, prompts, params, position, deadline_s=body.deadline_s, pooling=pooling.pooling
        )
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
        usage = EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        return EmbeddingReply(model=self.run.service.settings.model_name, data=data, usage=usage)

    async def reply(self) -> dict[str, Any]:
        return (await self.whole()).model_dump()


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
