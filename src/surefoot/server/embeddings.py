"""/v1/embeddings: texts or token ids become vectors of unit length."""

import base64
import math
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.core import SamplingParams
from surefoot.server.asker import Asker
from surefoot.server.completions import check_tokens
from surefoot.server.errors import bad_request
from surefoot.server.schemas.embeddings import Embedding, EmbeddingReply, EmbeddingRequest, EmbeddingUsage
from surefoot.server.service import Run, Service
from surefoot.server.sse import Mark
from surefoot.server.streaming import unless_gone

ROUTE = "/v1/embeddings"


def embeddings_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post(ROUTE)
    async def embeddings(body: EmbeddingRequest, http: HttpRequest) -> EmbeddingReply:
        found = await start_embeddings(service, body, Asker.of(http))
        return await unless_gone(http, found.run, found.whole)

    return router


async def start_embeddings(service: Service, body: EmbeddingRequest, asker: Asker) -> "Embeddings":
    service.check_model(body.model)
    width, inputs = service.llm.llm.config.width, body.inputs()
    if body.dimensions not in (None, width):
        raise bad_request(f"this model's vectors have {width} dimensions: leave dimensions out", "dimensions")
    with service.admit(asker.caller) as ticket:
        prompts = [await service.encode(one) if isinstance(one, str) else one for one in inputs]
        for prompt in prompts:
            check_tokens(service, prompt, "input")
            service.check_length(ticket.caller, len(prompt), 1)
        mark = Mark.start("", asker.request or uuid.uuid4().hex, int(time.time()), 0, len(prompts))
        params = [SamplingParams(max_tokens=1, seed=0)] * len(prompts)
        run = await service.start(ticket, asker, prompts, params, mark, deadline_s=body.deadline_s, embeds=True)
    return Embeddings(run, body)


class Embeddings:
    def __init__(self, run: Run, body: EmbeddingRequest) -> None:
        self.run = run
        self._body = body

    async def whole(self) -> EmbeddingReply:
        outputs, data = await self.run.whole(), list[Embedding]()
        for index, output in enumerate(outputs):
            assert output.embedding is not None
            vector = unit(output.embedding)
            encoded = packed(vector) if self._body.encoding_format == "base64" else vector
            data.append(Embedding(index=index, embedding=encoded))
        num_tokens = sum(output.usage.num_prompt for output in outputs)
        usage = EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        return EmbeddingReply(model=self.run.service.settings.model_name, data=data, usage=usage)

    async def reply(self) -> dict[str, Any]:
        return (await self.whole()).model_dump()


def unit(vector: Sequence[float]) -> list[float]:
    """Of length 1, in float32: both encodings hold the same numbers."""
    length = math.sqrt(math.fsum(value * value for value in vector)) or 1.0
    return list(struct.unpack(f"<{len(vector)}f", struct.pack(f"<{len(vector)}f", *(v / length for v in vector))))


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
