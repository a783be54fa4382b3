"""Streams show that they live while nothing comes of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from threading import Event
from typing import Any

import httpx
import pytest

from surefoot.api.async_llm import AsyncLLM
from surefoot.api.llm import LLM
from surefoot.server.answer import streaming
from surefoot.server.app import make_app
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings
from tests.stories import stories_gguf

MESSAGES = [{"role": "user", "content": "Once upon a time there was a cat. " * 3}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/responses": {"input": MESSAGES, "max_output_tokens": 2},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 2},
    "/api/chat": {"messages": MESSAGES, "options": {"num_predict": 2}},
}


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BEAT_S", 0.05)


async def streamed(route: str, num_beats: int) -> str:
    """A stream whose engine takes no step until so many signs of life have been sent."""
    service = Service(AsyncLLM(LLM(stories_gguf())), ServerSettings(model_name="a"), fingerprint="")
    app, held, beats = make_app(service, None, None), Event(), 0
    engine = service.llm.engine
    step = engine.step

    def step_later() -> Any:
        held.wait()
        return step()

    engine.step = step_later  # type: ignore[method-assign]
    service.llm.start()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            nonlocal beats
            beats += bool(message.get(streaming.BEAT))
            if beats >= num_beats:
                held.set()
            await send(message)

        await app(scope, receive, sending)

    try:
        transport = httpx.ASGITransport(watched)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None) as client:
            reply = await client.post(route, json={**BODIES[route], "stream": True})
        assert reply.status_code == 200
        return reply.text
    finally:
        held.set()
        await service.llm.stop()


def events(text: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("route", BODIES)
def test_each_api_has_its_sign(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.server.service.PROGRESS_S", 0.01)
    text = asyncio.run(streamed(route, 3))
    if route == "/v1/messages":
        pings = [data for data in events(text) if data["type"] == "ping"]
        assert len(pings) >= 3
        assert set(pings[0]["prompt_progress"]) == {"total", "cache", "processed"}
        assert pings[0]["prompt_progress"]["total"] > 10
    elif route == "/v1/responses":
        kinds = [data["type"] for data in events(text)]
        assert kinds[:5] == ["response.created", *["response.in_progress"] * 4]
        assert kinds[-1] in ("response.completed", "response.incomplete")
        numbers = [
            data["sequence_number"] for data in events(text) if "prompt_progress" not in data.get("response", {})
        ]
        assert numbers == [*range(len(numbers))], "those of an answer depend on no clock"
    elif route == "/api/chat":
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["message"]["content"] for line in lines[:3]] == ["", "", ""]
        assert lines[-1]["done"]
    else:
        assert text.count("\n: prompt 0/") + text.startswith(": prompt 0/") >= 3
        assert text.endswith("data: [DONE]\n\n")


class _Run:
    notices = ()

    def close(self) -> None:
        """Nothing is held."""


async def sent(parts: AsyncIterator[bytes], beat: streaming.Beat | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    stream = streaming.EventStream(_Run(), parts, 5.0, beat=beat)  # type: ignore[arg-type]
    await stream({"type": "http"}, receive, send)
    return messages[1:-1]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("sign", [b": a\n\n", b"", None])
def test_signs_come_between_whole_events(sign: bytes | None) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(0.3)
        yield b"two"
        yield b"three"

    async def beat() -> bytes:
        return sign or b""

    async def run() -> list[dict[str, Any]]:
        return await sent(parts(), None if sign is None else beat)

    messages = asyncio.run(run())
    own = [message["body"] for message in messages if not message.get(streaming.BEAT)]
    assert own == [b"one", b"two", b"three"]
    assert [messages[0]["body"], *(message["body"] for message in messages[-2:])] == own
    assert any(message.get(streaming.BEAT) for message in messages) == bool(sign)
