"""A route that is sent a body."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.app import make_app
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

Post = Callable[[str, bytes], Awaitable[tuple[int, Any]]]


def freeze_started() -> None:
    """As `surefoot serve` does: garbage collection passes over what was there at the start."""
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def posting(model: Path) -> AsyncIterator[tuple[Post, dict[str, Any]]]:
    """A server in this process, without sockets: how to post to it, and its schema."""
    service = Service(AsyncLLM(LLM(model, pooling="mean")), ServerSettings(model_name="a"), fingerprint="")
    app = make_app(service, None, None)
    service.llm.start()
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None) as client:
            openapi = (await client.get("/openapi.json")).json()
            freeze_started()

            async def post(route: str, body: bytes) -> tuple[int, Any]:
                reply = await client.post(route, content=body, headers={"content-type": "application/json"})
                return reply.status_code, reply

            yield post, openapi
    finally:
        await service.llm.stop()
