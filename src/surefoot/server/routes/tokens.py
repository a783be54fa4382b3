"""/tokenize and /detokenize."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.server.errors import ApiError
from surefoot.server.schemas.tokens import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)
from surefoot.server.service import Service


def tokens_router(service: Service) -> APIRouter:
    router = APIRouter()
    tokenizer = service.llm.tokenizer

    @router.post("/tokenize")
    async def tokenize(body: TokenizeRequest, http: HttpRequest) -> TokenizeReply:
        service.check_model(body.model)
        with service.admit(http.state.caller):
            ids = await tokens_of(body)
        texts = [tokenizer.token_bytes(token).decode(errors="replace") for token in ids]
        return TokenizeReply(
            count=len(ids),
            max_model_len=service.llm.max_context,
            tokens=ids,
            token_strs=texts if body.return_token_strs else None,
        )

    async def tokens_of(body: TokenizeRequest) -> list[int]:
        if body.messages is not None:
            text = await service.prompts.render(
                [message.as_template() for message in body.messages],
                tools=[tool.model_dump(exclude_none=True) for tool in body.tools] if body.tools else None,
                add_generation_prompt=body.add_generation_prompt,
            )
            return await service.prompts.encode(text, rendered=True)
        return await service.prompts.encode(body.prompt or "", add_special=body.add_special_tokens)

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> DetokenizeReply:
        service.check_model(body.model)
        if body.tokens and max(body.tokens) >= tokenizer.vocab_size:
            raise ApiError(400, f"token {max(body.tokens)} is beyond the vocabulary", param="tokens")
        return DetokenizeReply(prompt=tokenizer.decode(body.tokens, skip_special=False))

    return router
