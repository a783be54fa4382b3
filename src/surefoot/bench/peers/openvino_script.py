"""Serves /v1/completions with OpenVINO GenAI's continuous batching. Runs in a venv with uvicorn, without surefoot.

python openvino_script.py MODEL PORT SETTINGS

Prompts are token ids, and a token's text is its id: nothing is encoded or decoded.
"""

import asyncio
import json
import queue
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import openvino as ov  # type: ignore[import-not-found]
import openvino_genai as genai  # type: ignore[import-not-found]
import uvicorn


class Ask(NamedTuple):
    """A request."""

    prompt: list[int]
    num_new: int  # tokens of the answer
    ignore_eos: bool


class OpenVinoEngine:
    """Runs the pipeline in a thread that adds requests, steps and passes new tokens to callbacks."""

    def __init__(self, model: str, settings: dict[str, Any]) -> None:
        scheduling = genai.SchedulerConfig()
        scheduling.cache_size = settings["cache_gb"]
        scheduling.max_num_seqs = settings["num_streams"]
        scheduling.max_num_batched_tokens = settings["max_batched_tokens"]
        scheduling.enable_prefix_caching = settings["prefix_caching"]
        scheduling.dynamic_split_fuse = True
        properties = {"INFERENCE_NUM_THREADS": settings["threads"]}
        self._lookup: dict[str, int] = settings["lookup"]
        if self._lookup:
            properties["prompt_lookup"] = True
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        self._new: queue.Queue[tuple[Ask, Callable[[list[int] | None], None]]] = queue.Queue()
        threading.Thread(target=self._loop, daemon=True).start()

    def submit(self, ask: Ask, on_tokens: Callable[[list[int] | None], None]) -> None:
        """on_tokens: called on the engine's thread, the last time with None."""
        self._new.put((ask, on_tokens))

    def _loop(self) -> None:
        numbers, live = count(), dict[int, tuple[Any, Callable[[list[int] | None], None]]]()
        while True:
            while not live or not self._new.empty():
                ask, on_tokens = self._new.get()
                number = next(numbers)
                live[number] = (self._add(number, ask), on_tokens)
            self._pipeline.step()
            for number, (handle, on_tokens) in list(live.items()):
                while handle.can_read():
                    for output in handle.read().values():
                        on_tokens(list(output.generated_ids))
                if handle.get_status() != genai.GenerationStatus.RUNNING:
                    on_tokens(None)
                    del live[number]

    def _add(self, number: int, ask: Ask) -> Any:
        config = self._pipeline.get_config()  # has the tokens that end an answer
        config.max_new_tokens, config.ignore_eos, config.do_sample = ask.num_new, ask.ignore_eos, False
        for name, value in self._lookup.items():
            setattr(config, name, value)
        return self._pipeline.add_request(number, ov.Tensor(np.array([ask.prompt], np.int64)), config)


class App:
    """The few routes that the load generator uses, as an ASGI application."""

    def __init__(self, engine: OpenVinoEngine) -> None:
        self._engine = engine

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["path"] != "/v1/completions":
            await _respond(send, b"{}")
            return
        data, more = b"", True
        while more:
            message = await receive()
            data, more = data + message.get("body", b""), message.get("more_body", False)
        body = json.loads(data)
        tokens = self._tokens(Ask(body["prompt"], body["max_tokens"], body["ignore_eos"]))
        if body.get("stream"):
            await _stream(send, tokens)
        else:
            num_tokens = 0
            async for piece in tokens:
                num_tokens += len(piece)
            await _respond(send, json.dumps({"usage": {"completion_tokens": num_tokens}}).encode())

    async def _tokens(self, ask: Ask) -> AsyncIterator[list[int]]:
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[list[int] | None]()

        def on_tokens(piece: list[int] | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        self._engine.submit(ask, on_tokens)
        while (piece := await pieces.get()) is not None:
            yield piece


async def _stream(send: Callable[[Any], Awaitable[None]], tokens: AsyncIterator[list[int]]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    num_tokens = 0
    async for piece in tokens:
        num_tokens += len(piece)
        events = b"".join(b'data: {"choices":[{"index":0,"text":" %d"}]}\n\n' % token for token in piece)
        await send({"type": "http.response.body", "body": events, "more_body": True})
    usage = json.dumps({"choices": [], "usage": {"completion_tokens": num_tokens}}).encode()
    await send({"type": "http.response.body", "body": b"data: %s\n\ndata: [DONE]\n\n" % usage})


async def _respond(send: Callable[[Any], Awaitable[None]], body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    for part in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{part}.complete"})


def main() -> None:
    model, port, settings = sys.argv[1:]
    app = App(OpenVinoEngine(model, json.loads(settings)))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
