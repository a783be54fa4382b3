"""Ollama's API, the only one that many desktop programs speak.

Its streams are lines of JSON. Routes that load, fetch or remove models are missing, since the model is fixed.
"""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.api.answers import RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.blocks import Block, BlockChange, BlockKind, Blocks, ParsedAnswer, blocks_of
from surefoot.server.answer.completions import start_completion
from surefoot.server.answer.conversation import start_translated
from surefoot.server.answer.parsing import arguments_of
from surefoot.server.answer.streaming import is_cut, send_answer, whole_reply
from surefoot.server.answer.vectors import start_embeddings
from surefoot.server.bodies import JsonRoute, translated
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.ollama import (
    LATEST,
    EmbedReply,
    EmbedRequest,
    GenerateReply,
    GenerateRequest,
    OldEmbedReply,
    OldEmbedRequest,
    OllamaChatReply,
    OllamaChatRequest,
    ShowReply,
    ShowRequest,
)
from surefoot.server.schemas.replies import whole_or_stream
from surefoot.server.schemas.vectors import EmbeddingRequest
from surefoot.server.service import PromptProgress, RequestRun, Service

LINES = "application/x-ndjson"
Json = dict[str, Any]


def ollama_router(service: Service) -> APIRouter:
    # Some clients send no content type; the gate checks origins.
    router = APIRouter(route_class=JsonRoute, strict_content_type=False)
    _add_generating(router, service)
    _add_embedding(router, service)

    @router.post("/api/show")
    async def show(body: ShowRequest) -> ShowReply:
        _served_name(service, body.model or body.name)
        return _shown(service)

    return router


def _served_name(service: Service, name: str | None) -> str:
    """The name without the tag that Ollama's clients append."""
    name = name or service.settings.model_name
    name = name if name in service.settings.model_names else name.removesuffix(LATEST)
    service.check_model(name)
    return name


def _check_no_images(images: object) -> None:
    if images:
        raise bad_request("this model sees no images: send text alone", "images")


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


# ---- generating ----


def _add_generating(router: APIRouter, service: Service) -> None:
    @router.post("/api/chat", responses=whole_or_stream(OllamaChatReply, LINES))
    async def chat(body: OllamaChatRequest, http: HttpRequest) -> Response:
        name = _served_name(service, body.model)
        for message in body.messages:
            _check_no_images(message.images)
        if not body.messages:
            return JSONResponse(_loaded(name, _as_message))
        return await chatted(http, partial(body.as_chat, name), _as_message, body.stream)

    @router.post("/api/generate", responses=whole_or_stream(GenerateReply, LINES))
    async def generate(body: GenerateRequest, http: HttpRequest) -> Response:
        name = _served_name(service, body.model)
        _check_generate(body)
        if not body.prompt and not body.suffix:
            return JSONResponse(_loaded(name, _as_response))
        if body.raw or body.suffix:
            completion = translated(partial(body.as_completion, name))
            answer = await start_completion(service, completion, RequestContext.of(http))
            return await send_answer(http, OllamaAnswer(answer, _as_response), body.stream, LINES)
        return await chatted(http, partial(body.as_chat, name), _as_response, body.stream)

    async def chatted(http: HttpRequest, as_chat: Callable[[], ChatRequest], shape: Shape, streams: bool) -> Response:
        chat = await start_translated(service, as_chat, RequestContext.of(http))
        return await send_answer(http, OllamaAnswer(chat, shape), streams, LINES)


def _check_generate(body: GenerateRequest) -> None:
    _check_no_images(body.images)
    if body.template:
        raise bad_request("templates come from the model's file: leave template out", "template")
    if body.context:
        raise bad_request("context is not kept here: send the conversation to /api/chat", "context")


def _loaded(name: str, shape: "Shape") -> Json:
    """The reply to a request without a prompt, which asks to load the model: it is loaded."""
    return {"model": name, "created_at": _now(), **shape([]), "done": True, "done_reason": "load"}


def _line(data: Json) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


Shape = Callable[[list[Block]], Json]  # writes blocks of an answer as a reply's fields


def _as_message(blocks: list[Block]) -> Json:
    message: Json = {"role": "assistant", "content": _joined(blocks, BlockKind.TEXT)}
    if thinking := _joined(blocks, BlockKind.THINKING):
        message["thinking"] = thinking
    if calls := [_call(block) for block in blocks if block.kind is BlockKind.CALL]:
        message["tool_calls"] = calls
    return {"message": message}


def _as_response(blocks: list[Block]) -> Json:
    thinking = _joined(blocks, BlockKind.THINKING)
    return {"response": _joined(blocks, BlockKind.TEXT), **({"thinking": thinking} if thinking else {})}


def _joined(blocks: list[Block], kind: BlockKind) -> str:
    return "".join(block.text for block in blocks if block.kind is kind)


def _call(block: Block) -> Json:
    return {"id": block.id, "function": {"name": block.name, "arguments": arguments_of(block.text)}}


def _head(run: RequestRun) -> Json:
    return {"model": run.service.settings.model_name, "created_at": _now()}


def _end(output: RequestOutput) -> Json:
    """The last line's fields. Durations are in nanoseconds; loading took none."""
    usage, timings = output.usage, output.timings
    return {
        "done": True,
        "done_reason": "length" if is_cut(output.outputs[0].finish_reason) else "stop",
        "total_duration": _ns(timings.total),
        "load_duration": 0,
        "prompt_eval_count": usage.num_prompt,
        "prompt_eval_duration": _ns(timings.to_first_token - timings.queued),
        "eval_count": usage.num_generated,
        "eval_duration": _ns(timings.total - timings.to_first_token),
    }


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


class OllamaAnswer:
    """A tool call is sent once it is complete."""

    def __init__(self, answer: ParsedAnswer, shape: Shape) -> None:
        self.run = answer.run
        self._answer = answer
        self._shape = shape

    async def reply(self) -> Json:
        (output,) = await self.run.whole()
        blocks = blocks_of(self._answer.parts_of(output.outputs[0]))
        return {**_head(self.run), **self._shape(blocks), **_end(output)}

    def failed(self, error: ApiError) -> bytes:
        return _line(error.as_ollama())

    def beat(self, progress: PromptProgress) -> bytes:
        """A line without text: this API has no other sign of life."""
        return self._more([])

    def _more(self, blocks: list[Block]) -> bytes:
        return _line({**_head(self.run), **self._shape(blocks), "done": False})

    async def events(self) -> AsyncIterator[bytes]:
        async for change in Blocks().changes(self._answer):
            if parts := _parts(*change):
                yield self._more(parts)
        yield _line({**_head(self.run), **self._shape([]), **_end(self.run.outputs[-1])})


def _parts(change: BlockChange, block: Block, text: str) -> list[Block]:
    """The blocks to send for a change: a piece of text, or a complete call."""
    if block.kind is BlockKind.CALL:
        return [block] if change is BlockChange.STOP else []
    return [Block(block.kind, block.index, text=text)] if change is BlockChange.MORE else []


# ---- embeddings ----


def _add_embedding(router: APIRouter, service: Service) -> None:
    async def embedded(http: HttpRequest, body: EmbeddingRequest) -> tuple[list[list[float]], RequestRun]:
        answer = await start_embeddings(service, body, RequestContext.of(http))
        return [item["embedding"] for item in (await whole_reply(http, answer))["data"]], answer.run

    @router.post("/api/embed")
    async def embed(body: EmbedRequest, http: HttpRequest) -> EmbedReply:
        name = _served_name(service, body.model)
        if body.input in ("", []):  # asks to load the model
            return EmbedReply(model=name, embeddings=[])
        vectors, run = await embedded(http, translated(partial(body.as_openai, name)))
        total = _ns(max(output.timings.total for output in run.outputs))
        return EmbedReply(model=name, embeddings=vectors, prompt_eval_count=run.num_prompt, total_duration=total)

    @router.post("/api/embeddings")
    async def embeddings(body: OldEmbedRequest, http: HttpRequest) -> OldEmbedReply:
        name = _served_name(service, body.model)
        vectors, _ = await embedded(http, EmbeddingRequest(model=name, input=body.prompt))
        return OldEmbedReply(embedding=vectors[0])


# ---- the model ----


def _shown(service: Service) -> ShowReply:
    llm, model = service.llm, service.shown
    config, templates = llm.config, llm.chat_template.templates
    abilities = ["completion", "tools"] if "default" in templates else ["completion"]
    abilities += ["embedding"] if llm.pooling is not None and not llm.pooling.ranks else []
    abilities += ["insert"] if llm.tokenizer.fim is not None else []
    abilities += ["thinking"] if any("<think>" in source for source in templates.values()) else []
    return ShowReply(
        details=model.details,
        model_info={
            "general.architecture": config.family,
            f"{config.family}.context_length": llm.max_context,
            f"{config.family}.embedding_length": config.width,
            f"{config.family}.block_count": len(config.layers),
        },
        capabilities=abilities,
        template=templates.get("default", ""),
        modelfile="",
        parameters="",
        modified_at=model.modified_at,
    )
