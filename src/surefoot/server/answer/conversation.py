"""Conversations in the engine, whichever API they came by."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from surefoot.api.answers import CompletionOutput, Piece
from surefoot.api.defaults import for_calls
from surefoot.api.pooling import PoolingConfig
from surefoot.server.access.request_context import ReplyIdentity, RequestContext, StreamPosition, digest_of
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.channels import ChannelParser
from surefoot.server.answer.custom_calls import CustomInputs
from surefoot.server.answer.parsing import THINK, Chain, MessageDelta, Parser, ReasoningParser
from surefoot.server.answer.structured import AnswerConstraint, AskedAnswer, check_tools, constrain
from surefoot.server.answer.tool_calls import ModelCalls, calls_as_text
from surefoot.server.bodies import translated
from surefoot.server.errors import bad_request
from surefoot.server.schemas.chat import ChatRequest, Message
from surefoot.server.schemas.tools import AnyTool, CustomTool
from surefoot.server.service import RequestRun, Service


class ChatRun:
    """A chat request in the engine. Its answers are parsed into reasoning, content and tool calls."""

    def __init__(self, run: RequestRun, body: ChatRequest, is_thinking: bool, constraint: AnswerConstraint) -> None:
        """is_thinking: the prompt ends inside a thought."""
        self.run = run
        self.body = body
        self._is_thinking = is_thinking
        self._constraint = constraint
        self._custom = frozenset(tool.custom.name for tool in body.tools or () if isinstance(tool, CustomTool))

    def _parser(self, index: int) -> Parser:
        in_channels = self._constraint.calls.in_channels
        reasoning: Parser = ChannelParser() if in_channels else ReasoningParser(self._is_thinking)
        if not self.body.tools or self.body.tool_choice == "none":
            return reasoning
        held = self._constraint
        name = f"call_{self.run.position.request[:16]}_{index}_"
        calls = CallParser(name, held.plain, held.calls.form, held.tools)
        return Chain(reasoning, CustomInputs(calls, self._custom) if self._custom else calls)

    def parts_of(self, answer: CompletionOutput) -> MessageDelta:
        parser = self._parser(answer.index)
        return parser.feed(answer.text) + parser.finish()

    async def deltas(self) -> AsyncIterator[tuple[Piece, MessageDelta]]:
        parsers = [self._parser(index) for index in range(self.body.n or 1)]
        async for piece in self.run.pieces():
            parser = parsers[piece.index]
            delta = parser.feed(piece.text)
            yield piece, delta if piece.finish_reason is None else delta + parser.finish()


async def start_conversation(service: Service, body: ChatRequest, context: RequestContext) -> ChatRun:
    service.check_model(body.model)
    check_chats(service.llm.pooling)
    with service.admit(context.caller) as ticket:
        position = await find_position(service, context, body, body.n or 1)
        tools, choice = check_tools(body.tools or (), body.tool_choice)
        calls = await service.prompts.tried(ModelCalls.find)
        prompt = await render_request(service, body, context.num_body_bytes, position.created)
        is_thinking = prompt.rstrip().endswith(THINK)
        parallel = body.parallel_tool_calls is not False
        form = AskedAnswer(body.response_format, tools, choice, parallel, is_thinking, calls)
        constraint = await constrain(service.llm.grammars, service.grammar_turns, form)
        tokens = await service.prompts.encode(prompt, rendered=True)
        limit = service.prompts.check_length(ticket.caller, len(tokens), body.limit)
        defaults = for_calls(service.llm.default_sampling) if form.may_call else service.llm.default_sampling
        params = body.sampling(limit, body.num_logprobs, position.seed, constraint.grammar, defaults)
        if calls.in_channels or (form.may_call and calls.needs_special):
            params = replace(params, skip_special_tokens=False)
        run = await service.start(
            ticket, context, [tokens], [params], position, deadline_s=body.deadline_s, tier=body.service_tier,
            continues=body.continue_final_message,
        )  # fmt: skip
        run.notices = constraint.notices
    return ChatRun(run, body, is_thinking, constraint)


async def start_translated(service: Service, as_chat: Callable[[], ChatRequest], context: RequestContext) -> ChatRun:
    """A conversation that came by another API. as_chat: makes it a chat request."""
    chat = await service.body_work.run(context.num_body_bytes, partial(translated, as_chat))
    return await start_conversation(service, chat, context)


def check_chats(pooling: PoolingConfig | None) -> None:
    """Refuse conversations with a model whose own files say that it makes vectors or scores. An operator who chose the
    pooling of another model may still chat with it."""
    if pooling is None or not pooling.is_named:
        return
    kind, route = ("ranks documents", "/v1/rerank") if pooling.ranks else ("makes embeddings", "/v1/embeddings")
    raise bad_request(
        f"this model {kind} and does not chat, as its files say: use {route}, or a chat model", "model", "no_chat"
    )


async def render_request(service: Service, body: ChatRequest, num_bytes: int, created: float) -> str:
    """The prompt of a chat request. Tools that may not be called are in it too: without them nothing of it would be
    cached. num_bytes: length of the request's body. created: Unix time of the request."""
    variables = template_variables(body, created)
    return await render_chat(service, body.messages, body.tools or (), num_bytes, **variables)


async def render_chat(
    service: Service, messages: Sequence[Message], tools: Sequence[AnyTool], num_bytes: int, **variables: Any
) -> str:
    """The prompt of a conversation. num_bytes: length of the request's body. variables: of the template."""
    calls = await service.prompts.tried(ModelCalls.find)

    def for_template() -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None]:
        functions = [tool.as_function().model_dump(exclude_none=True) for tool in tools]
        return calls.for_template([message.as_template() for message in messages], functions)

    said, described = await service.body_work.run(num_bytes, for_template)
    if calls.form.is_written or not any(message.get("tool_calls") for message in said):
        return await service.prompts.render(said, tools=described, **variables)
    shield = service.llm.tokenizer.shield
    said, texts = await service.body_work.run(num_bytes, partial(calls_as_text, calls.form, said, shield))
    prompt = await service.prompts.render(said, tools=described, **variables)
    for mark, text in texts.items():
        prompt = prompt.replace(mark, text)
    return prompt


def template_variables(body: ChatRequest, created: float) -> dict[str, Any]:
    """Of the request, and those that the client sets, but for names that render() itself uses."""
    variables: dict[str, Any] = {"reasoning_effort": body.reasoning_effort} if body.reasoning_effort else {}
    if body.reasoning_effort == "none":
        variables = {"enable_thinking": False}
    own = {
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": body.continue_final_message,
        "now": request_time(body, created),
    }
    reserved = {"messages", "tools", "documents", "self"}
    chosen = {name: value for name, value in body.chat_template_kwargs.items() if name not in reserved}
    return {**variables, **chosen, **own}


def request_time(body: ChatRequest, created: float) -> datetime:
    """The time that the template prints: in UTC that of the request, which it keeps wherever it is resumed, unless the
    request itself gives one."""
    given = body.chat_template_kwargs.get("now")
    try:
        if given is None:
            return datetime.fromtimestamp(created, UTC)
        time = datetime.fromisoformat(str(given))
    except (ValueError, OverflowError, OSError):
        raise bad_request("`now` is a time such as 2026-11-18T09:30:00+01:00", "chat_template_kwargs") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


async def find_position(service: Service, context: RequestContext, body: Any, num_answers: int) -> StreamPosition:
    """The position at which the client resumes, or the start. The server draws a seed if the request has none."""
    digest = await service.body_work.run(context.num_body_bytes, partial(_digest, service.fingerprint, context, body))
    if context.last_event_id and body.stream:
        return StreamPosition.parse(context.last_event_id, digest, num_answers)
    forwarded = context.forwarded
    chosen = forwarded.identity if forwarded is not None else ReplyIdentity.draw(context.request, context.created)
    seed = body.seed if body.seed is not None else chosen.seed
    return StreamPosition.start(digest, chosen.request, chosen.created, seed, num_answers)


def _digest(fingerprint: str, context: RequestContext, body: Any) -> str:
    asked = json.dumps(body.model_dump(exclude={"stream", "stream_options"}), sort_keys=True)
    return digest_of(fingerprint, context.route, asked)
