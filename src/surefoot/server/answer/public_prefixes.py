"""Beginnings of prompts that all users share in the cache: a system message, or tools and rules of an agent."""

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from surefoot.server.answer.conversation import render_request
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.dialects import noting_unknown
from surefoot.server.schemas.messages import MessagesRequest
from surefoot.server.schemas.responses import ResponsesRequest
from surefoot.server.service import Service


class _Chats(Protocol):
    """A request's schema that says the same as a chat's."""

    @classmethod
    def model_validate(cls, body: Any) -> "_Chats": ...
    def as_chat(self) -> ChatRequest: ...


SCHEMAS: Mapping[str, type[_Chats]] = {"/v1/messages": MessagesRequest, "/v1/responses": ResponsesRequest}


async def learn_public_prefixes(service: Service) -> None:
    for text in service.settings.public_prefixes:
        prompts = [await render_request(service, chat, len(text), time.time()) for chat in public_chats(text)]
        service.prompts.share([await service.prompts.encode(prompt, rendered=True) for prompt in prompts])


def public_chats(text: str) -> list[ChatRequest]:
    """Chats that begin alike: with a system message, or as a request that `surefoot warm --save` wrote.

    Raises ValueError.
    """
    if text.startswith("{"):
        return [_saved(text)]
    system = {"role": "system", "content": text}
    chats = [{"messages": [system, {"role": "user", "content": said}]} for said in ("a", "Z")]
    return [ChatRequest.model_validate(chat) for chat in chats]


def _saved(text: str) -> ChatRequest:
    try:
        saved = json.loads(text)
        path, body = saved["path"], saved["body"]
        with noting_unknown(is_strict=False):
            return SCHEMAS[path].model_validate(body).as_chat() if path in SCHEMAS else ChatRequest.model_validate(body)
    except (KeyError, TypeError, ValueError) as error:
        expected = "a request as `surefoot warm --agent NAME --save FILE` writes it"
        raise ValueError(f"--public-prefix: a file that begins with {{ must hold {expected}: {error}") from None
