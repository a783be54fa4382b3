"""Embeddings: texts or token ids become vectors of unit length."""

import base64
import math
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

from surefoot.core import SamplingParams
from surefoot.server.access.request_context import RequestContext
from surefoot.server.errors import bad_request
from surefoot.server.schemas.embeddings import Embedding, EmbeddingReply, EmbeddingRequest, EmbeddingUsage
from surefoot.server.service import RequestRun, Service
from surefoot.server.stream_position import StreamPosition


async def start_embeddings(service: Service, body: EmbeddingRequest, context: RequestContext) -> "Embeddings":
    service.check_model(body.model)
    width, inputs = service.llm.config.width, body.inputs()
    if body.dimensions not in (None, width):
        raise bad_request(f"this model's vectors have {width} dimensions: leave dimensions out", "dimensions")
    with service.admit(context.caller) as ticket:
        prompts = [await service.prompts.encode(text) if isinstance(text, str) else text for text in inputs]
        for prompt in prompts:
            service.prompts.check_tokens(prompt, "input")
            service.prompts.check_length(ticket.caller, len(prompt), 1)
        position = StreamPosition.start("", context.request or uuid.uuid4().hex, int(time.time()), 0, len(prompts))
        params = [SamplingParams(max_tokens=1, seed=0)] * len(prompts)
        run = await service.start(ticket, context, prompts, params, position, deadline_s=body.deadline_s, embeds=True)
    return Embeddings(run, body)


class Embeddings:
    def __init__(self, run: RequestRun, body: EmbeddingRequest) -> None:
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
    """The vector scaled to length 1, in float32, so that both encodings hold the same numbers."""
    length = math.sqrt(math.fsum(value * value for value in vector)) or 1.0
    return list(struct.unpack(f"<{len(vector)}f", struct.pack(f"<{len(vector)}f", *(v / length for v in vector))))


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
