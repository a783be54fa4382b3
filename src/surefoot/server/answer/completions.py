"""Continuations of texts or token ids, in the form of OpenAI's completions."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from surefoot.api.answers import CompletionOutput, Logprob, Piece, RequestOutput
from surefoot.server.access.request_context import RequestContext
from surefoot.server.answer.conversation import find_position
from surefoot.server.answer.parsing import MessageDelta
from surefoot.server.answer.streaming import (
    DONE,
    ChunkTemplate,
    comment,
    failed_event,
    finish_fields,
    reply_head,
    usage_of,
)
from surefoot.server.answer.structured import AskedAnswer, constrain
from surefoot.server.errors import bad_request
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.service import RequestRun, Service
from surefoot.text import OtherFile

MOST_ANSWERS = 64


async def start_completion(service: Service, body: CompletionRequest, context: RequestContext) -> "TextCompletion":
    service.check_model(body.model)
    prompts, n = body.prompts(), body.n or 1
    if len(prompts) * n > MOST_ANSWERS:
        raise bad_request(f"prompts times n is {len(prompts) * n}: ask for {MOST_ANSWERS} answers at most", "n")
    with service.admit(context.caller) as ticket:
        position = await find_position(service, context, body, len(prompts) * n)
        token_lists = [await _tokens_of(service, body, prompt) for prompt in prompts]
        for tokens in token_lists:
            service.prompts.check_tokens(tokens)
        # With max_tokens 0 one token is generated all the same, so that the prompt is computed like any other.
        most = None if body.max_tokens is None else max(body.max_tokens, 1)
        limits = [service.prompts.check_length(ticket.caller, len(tokens), most) for tokens in token_lists]
        constraint = await constrain(service.llm.grammars, service.grammar_turns, AskedAnswer(body.response_format))
        common = body.sampling(most, body.logprobs, position.seed, constraint.grammar, service.llm.default_sampling)
        common = replace(common, prompt_logprobs=body.prompt_logprobs)
        params = [replace(common, max_tokens=limit) for limit in limits]
        decode = service.llm.tokenizer.decode
        echoes = [""] * len(prompts)
        if body.echo:
            echoes = await service.body_work.run(
                context.num_body_bytes,
                lambda: [prompt if isinstance(prompt, str) else decode(prompt) for prompt in prompts],
            )
        run = await service.start(
            ticket, context, token_lists, params, position, deadline_s=body.deadline_s, continues=True
        )
    firsts = [decode(tokens[:1], skip_special=False) for tokens in token_lists]
    return TextCompletion(run, body, echoes, firsts)


async def _tokens_of(service: Service, body: CompletionRequest, prompt: str | list[int]) -> list[int]:
    if body.fills_in:
        others = [OtherFile(file.filename, file.text) for file in body.input_extra or ()]
        return await service.prompts.encode_infill(prompt, body.suffix or "", others)
    return await service.prompts.encode(prompt) if isinstance(prompt, str) else prompt


def _prompt_alone(output: RequestOutput) -> RequestOutput:
    answers = [
        replace(answer, text="", token_ids=(), logprobs=None if answer.logprobs is None else (), finish_reason="length")
        for answer in output.outputs
    ]
    return replace(output, outputs=tuple(answers), usage=replace(output.usage, num_generated=0))


class TextCompletion:
    """The answers as OpenAI's completion or its chunks.

    echoes: the prompts' texts where the client asked for them. first_texts: the text of each prompt's first token.
    """

    failed, beat = staticmethod(failed_event), staticmethod(comment)

    def __init__(
        self, run: RequestRun, body: CompletionRequest, echoes: Sequence[str], first_texts: Sequence[str]
    ) -> None:
        self.run = run
        self._first_texts = first_texts
        self._body = body
        self._n = body.n or 1
        self._head = reply_head(run, "cmpl", "text_completion")
        self._echoes = echoes
        has_scores = body.prompt_logprobs is not None
        # Characters so far, for text_offset.
        self._lengths = [0 if has_scores else len(echo) for echo in echoes for _ in range(self._n)]

    def parts_of(self, answer: CompletionOutput) -> MessageDelta:
        return MessageDelta(answer.text)

    async def deltas(self) -> AsyncIterator[tuple[Piece, MessageDelta]]:
        async for piece in self.run.pieces():
            yield piece, MessageDelta(piece.text)

    async def reply(self) -> dict[str, Any]:
        outputs = await self.run.whole()
        choices = []
        if self._body.max_tokens == 0:
            outputs = [_prompt_alone(output) for output in outputs]
        for number, output in enumerate(outputs):
            for answer in output.outputs:
                index = number * self._n + answer.index
                text = self._echoes[number] + answer.text
                before = output.prompt_logprobs or ()
                logprobs = answer.logprobs if answer.logprobs is None else (*before, *answer.logprobs)
                choices.append(self._choice(index, text, logprobs, answer.token_ids, answer.finish_reason))
        return {**self._head, "choices": choices, "usage": usage_of(self.run, outputs)}

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: Sequence[Mapping[int, Logprob] | None] | None,
        tokens: Sequence[int],
        finish: str | None,
    ) -> dict[str, Any]:
        fields = self._logprobs(index, logprobs) if logprobs is not None else None
        choice = {"index": index, "text": text, "logprobs": fields, **finish_fields(finish)}
        return choice | ({"token_ids": list(tokens)} if self._body.return_token_ids else {})

    def _logprobs(self, index: int, tokens: Sequence[Mapping[int, Logprob] | None]) -> dict[str, Any]:
        """The first token of a prompt has no logprob (None), since no token comes before it."""
        firsts = [None if logprobs is None else next(iter(logprobs.values())) for logprobs in tokens]
        texts = [
            self._first_texts[index // self._n] if logprobs is None else logprobs.decoded_token for logprobs in firsts
        ]
        offsets = []
        for text in texts:
            offsets.append(self._lengths[index])
            self._lengths[index] += len(text)
        top = [
            None if logprobs is None else {logprob.decoded_token: logprob.logprob for logprob in logprobs.values()}
            for logprobs in tokens
        ]
        return {
            "tokens": texts,
            "token_logprobs": [logprobs and logprobs.logprob for logprobs in firsts],
            "top_logprobs": top if self._body.logprobs else None,
            "text_offset": offsets,
        }

    async def events(self) -> AsyncIterator[bytes]:
        start = self.run.position
        position = start.restarted()
        template = ChunkTemplate(self._head, self._body.wants_usage)
        for index, count in enumerate(start.counts):
            if self._body.echo and not count:
                choice = self._choice(index, self._echoes[index // self._n], None, (), None)
                yield template.event(choice, position)
        async for piece in self.run.pieces():
            index, count = piece.index, position.counts[piece.index] + len(piece.token_ids)
            ended = piece.finish_reason is not None
            position = position.advanced(index, count, ended)
            choice = self._choice(index, piece.text, piece.logprobs, piece.token_ids, piece.finish_reason)
            is_new = count > start.counts[index] or (ended and not start.ended[index])
            if is_new and (piece.text or piece.logprobs or ended or (self._body.return_token_ids and piece.token_ids)):
                yield template.event(choice, position)
        if self._body.wants_usage and not start.usage_sent:
            yield template.last(usage_of(self.run, self.run.outputs), position.with_usage())
        yield DONE
