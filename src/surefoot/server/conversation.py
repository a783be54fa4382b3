"""A conversation on its way through the engine, whichever API it came by."""

import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from surefoot.api.outputs import CompletionOutput, Piece
from surefoot.server.asker import Asker
from surefoot.server.parts import THINK, Chain, Delta, Parser, ReasoningParser
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.service import Run, Service
from surefoot.server.sse import Mark, digest_of
from surefoot.server.structured import check_tools, held_to
from surefoot.server.tool_calls import CallParser, knows_calls, with_instructions


class Conversation:
    """A request's answers, taken apart into reasoning, content and calls."""

    def __init__(self, run: Run, body: ChatRequest, is_thinking: bool, plain: tuple[str, ...] = ()) -> None:
        """plain: tools whose calls may come without tags."""
        self.run = run
        self.body = body
        self._is_thinking = is_thinking
        self._plain = plain

    def _parser(self, index: int) -> Parser:
        reasoning = ReasoningParser(self._is_thinking)
        if not self.body.tools or self.body.tool_choice == "none":
            return reasoning
        return Chain(reasoning, CallParser(f"call_{self.run.mark.request[:16]}_{index}_", self._plain))

    def parts_of(self, answer: CompletionOutput) -> Delta:
        parser = self._parser(answer.index)
        return parser.feed(answer.text) + parser.finish()

    async def deltas(self) -> AsyncIterator[tuple[Piece, Delta]]:
        parsers = [self._parser(index) for index in range(self.body.n or 1)]
        async with aclosing(self.run.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                parser = parsers[piece.index]
                delta = parser.feed(piece.text)
                yield piece, delta if piece.finish_reason is None else delta + parser.finish()


async def start_conversation(service: Service, body: ChatRequest, asker: Asker) -> Conversation:
    service.check_model(body.model)
    with service.admit(asker.caller) as ticket:
        mark = find_mark(service, asker, body, body.n or 1)
        tools, choice = body.tools or [], body.tool_choice or "auto"
        check_tools(tools, choice)
        prompt = await render_chat(service, body)
        is_thinking = prompt.rstrip().endswith(THINK)
        parallel = body.parallel_tool_calls is not False
        held = await held_to(
            service.llm.llm.grammars, service.grammar_turns, body.response_format, tools, choice, parallel, is_thinking
        )
        tokens = await service.encode(prompt, rendered=True)
        limit = service.check_length(ticket.caller, len(tokens), body.limit)
        params = body.sampling(limit, body.num_logprobs, mark.seed, held.grammar, service.default_sampling)
        run = await service.start(
            ticket, asker, [tokens], [params], mark, deadline_s=body.deadline_s, tier=body.service_tier,
            continues=body.continue_final_message,
        )  # fmt: skip
        run.notices = held.notices
    return Conversation(run, body, is_thinking, held.plain)


async def render_chat(service: Service, body: ChatRequest) -> str:
    messages: list[dict[str, Any]] = [message.as_template() for message in body.messages]
    tools = None
    if body.tools and body.tool_choice != "none":
        tools = [tool.model_dump(exclude_none=True) for tool in body.tools]
    if not knows_calls(service.llm.llm.chat_template.templates):
        messages, tools = with_instructions(messages, tools or ()), None
    return await service.render(
        messages,
        tools=tools,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        **template_variables(body),
    )


def template_variables(body: ChatRequest) -> dict[str, Any]:
    """What templates may read besides the messages; names that mean something to render() are not for clients."""
    given: dict[str, Any] = {"reasoning_effort": body.reasoning_effort} if body.reasoning_effort else {}
    if body.reasoning_effort == "none":
        given = {"enable_thinking": False}
    reserved = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "self"}
    return {**given, **{name: value for name, value in body.chat_template_kwargs.items() if name not in reserved}}


def find_mark(service: Service, asker: Asker, body: Any, num_answers: int) -> Mark:
    """Where the client broke off, or a beginning. Without a seed in the request the server draws one."""
    asked = json.dumps(body.model_dump(exclude={"stream", "stream_options"}), sort_keys=True)
    digest = digest_of(service.fingerprint, asker.route, asked)
    if asker.last_event_id and body.stream:
        return Mark.parse(asker.last_event_id, digest, num_answers)
    seed = body.seed if body.seed is not None else secrets.randbits(63)
    return Mark.start(digest, asker.request or uuid.uuid4().hex, int(time.time()), seed, num_answers)
