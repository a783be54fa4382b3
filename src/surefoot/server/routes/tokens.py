"""/tokenize and /detokenize."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from surefoot.server.answer.conversation import render_chat
from surefoot.server.bodies import JsonRoute
from surefoot.server.errors import ApiError
from surefoot.server.schemas.tokens import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)
from surefoot.server.service import Service


def tokens_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)
    tokenizer = service.llm.tokenizer

    @router.post("/tokenize", response_model=TokenizeReply)
    async def tokenize(body: TokenizeRequest, http: HttpRequest) -> Response:
        service.check_model(body.model)
        num_bytes = http.state.num_body_bytes
        with service.admit(http.state.caller):
            ids = await tokens_of(body, num_bytes)
            return await service.body_work.run(num_bytes, partial(tokenized, ids, body.return_token_strs))

    def tokenized(ids: list[int], with_texts: bool) -> Response:
        texts = [tokenizer.token_bytes(token).decode(errors="replace") for token in ids] if with_texts else None
        reply = TokenizeReply(count=len(ids), max_model_len=service.llm.max_context, tokens=ids, token_strs=texts)
        return Response(reply.model_dump_json(), media_type="application/json")

    async def tokens_of(body: TokenizeRequest, num_bytes: int) -> list[int]:
        if body.messages is not None:
            begins = body.add_generation_prompt
            prompt = await render_chat(
                service, body.messages, body.tools or (), num_bytes, add_generation_prompt=begins
            )
            return await service.prompts.encode(prompt, rendered=True)
        return await service.prompts.encode(body.prompt or "", add_special=body.add_special_tokens)

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeRequest, http: HttpRequest) -> DetokenizeReply:
        service.check_model(body.model)
        if body.tokens and max(body.tokens) >= tokenizer.vocab_size:
            raise ApiError(400, f"token {max(body.tokens)} is beyond the vocabulary", param="tokens")
        decode = partial(tokenizer.decode, body.tokens, skip_special=False)
        return DetokenizeReply(prompt=await service.body_work.run(http.state.num_body_bytes, decode))

    return router
