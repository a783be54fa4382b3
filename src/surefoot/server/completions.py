"""/v1/completions: texts or token ids go on."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from surefoot.api.outputs import Logprob, RequestOutput
from surefoot.server.asker import Asker
from surefoot.server.chat import usage_of
from surefoot.server.conversation import find_mark
from surefoot.server.errors import bad_request
from surefoot.server.finish import finish_fields
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.replies import CompletionReply, whole_or_stream
from surefoot.server.service import Run, Service
from surefoot.server.sse import Mark, Template, openai_stream
from surefoot.server.streaming import EventStream, unless_gone
from surefoot.server.structured import held_to
from surefoot.text import OtherFile

ROUTE = "/v1/completions"
MOST_ANSWERS = 64


def completions_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post(ROUTE, responses=whole_or_stream(CompletionReply))
    async def completions(body: CompletionRequest, http: HttpRequest) -> Response:
        completion = await start_completion(service, body, Asker.of(http))
        if body.stream:
            return EventStream(completion.run, completion.events(), service.settings.read_s)
        return JSONResponse(await unless_gone(http, completion.run, completion.reply))

    return router


async def start_completion(service: Service, body: CompletionRequest, asker: Asker) -> "Completion":
    service.check_model(body.model)
    prompts, n = body.prompts(), body.n or 1
    if len(prompts) * n > MOST_ANSWERS:
        raise bad_request(f"prompts times n is {len(prompts) * n}: ask for {MOST_ANSWERS} answers at most", "n")
    with service.admit(asker.caller) as ticket:
        mark = find_mark(service, asker, body, len(prompts) * n)
        tokens = [await _tokens_of(service, body, prompt) for prompt in prompts]
        for one in tokens:
            check_tokens(service, one)
        # One token is drawn where none is wanted, so that the prompt is read like any other.
        most = None if body.max_tokens is None else max(body.max_tokens, 1)
        limits = [service.check_length(ticket.caller, len(one), most) for one in tokens]
        held = await held_to(service.llm.llm.grammars, service.grammar_turns, body.response_format)
        common = body.sampling(most, body.logprobs, mark.seed, held.grammar, service.default_sampling)
        common = replace(common, prompt_logprobs=body.prompt_logprobs)
        params = [replace(common, max_tokens=limit) for limit in limits]
        decode = service.llm.llm.tokenizer.decode
        texts = [prompt if isinstance(prompt, str) else decode(prompt) for prompt in prompts]
        run = await service.start(ticket, asker, tokens, params, mark, deadline_s=body.deadline_s, continues=True)
    firsts = [decode(one[:1], skip_special=False) for one in tokens]
    return Completion(run, body, texts if body.echo else [""] * len(prompts), firsts)


async def _tokens_of(service: Service, body: CompletionRequest, prompt: str | list[int]) -> list[int]:
    if body.fills_in:
        others = [OtherFile(one.filename, one.text) for one in body.input_extra or ()]
        return await service.encode_infill(prompt, body.suffix or "", others)
    return await service.encode(prompt) if isinstance(prompt, str) else prompt


def check_tokens(service: Service, tokens: Sequence[int], param: str = "prompt") -> None:
    if not tokens:
        raise bad_request(f"the {param} is empty: give at least one character or token", param)
    if max(tokens) >= service.llm.llm.config.vocab_size:
        raise bad_request(f"token {max(tokens)} is beyond the vocabulary", param)


def _prompt_alone(output: RequestOutput) -> RequestOutput:
    answers = [
        replace(answer, text="", token_ids=(), logprobs=None if answer.logprobs is None else (), finish_reason="length")
        for answer in output.outputs
    ]
    return replace(output, outputs=tuple(answers), usage=replace(output.usage, num_generated=0))


class Completion:
    """echoes: the prompts' texts, if they are wanted. first_texts: those of the prompts' first tokens."""

    def __init__(self, run: Run, body: CompletionRequest, echoes: Sequence[str], first_texts: Sequence[str]) -> None:
        self.run = run
        self._first_texts = first_texts
        self._body = body
        self._n = body.n or 1
        self._echoes = echoes
        has_scores = body.prompt_logprobs is not None
        # Characters so far, for text_offset.
        self._lengths = [0 if has_scores else len(echo) for echo in echoes for _ in range(self._n)]

    def _head(self) -> dict[str, Any]:
        service = self.run.service
        return {
            "id": f"cmpl-{self.run.mark.request}",
            "object": "text_completion",
            "created": self.run.mark.created,
            "model": service.settings.model_name,
            "system_fingerprint": service.fingerprint,
        }

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
        usage = {**usage_of(outputs), "sampling": self.run.sampling}
        return {**self._head(), "choices": choices, "usage": usage}

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: Sequence[Mapping[int, Logprob] | None] | None,
        tokens: Sequence[int],
        finish: str | None,
    ) -> dict[str, Any]:
        found = self._logprobs(index, logprobs) if logprobs is not None else None
        choice = {"index": index, "text": text, "logprobs": found, **finish_fields(finish)}
        return choice | ({"token_ids": list(tokens)} if self._body.return_token_ids else {})

    def _logprobs(self, index: int, tokens: Sequence[Mapping[int, Logprob] | None]) -> dict[str, Any]:
        """None for a prompt's first token, which nothing comes before."""
        firsts = [None if one is None else next(iter(one.values())) for one in tokens]
        texts = [self._first_texts[index // self._n] if one is None else one.decoded_token for one in firsts]
        offsets = []
        for text in texts:
            offsets.append(self._lengths[index])
            self._lengths[index] += len(text)
        top = [
            None if one is None else {found.decoded_token: found.logprob for found in one.values()} for one in tokens
        ]
        return {
            "tokens": texts,
            "token_logprobs": [one and one.logprob for one in firsts],
            "top_logprobs": top if self._body.logprobs else None,
            "text_offset": offsets,
        }

    def events(self) -> AsyncGenerator[bytes, None]:
        return openai_stream(self._chunks(), self.run.service.metrics.refuse)

    async def _chunks(self) -> AsyncIterator[bytes]:
        start = self.run.mark
        mark = Mark.start(start.digest, start.request, start.created, start.seed, len(start.counts))
        wants_usage = bool(self._body.stream_options and self._body.stream_options.include_usage)
        template = Template(self._head(), wants_usage)
        for index, count in enumerate(start.counts):
            if self._body.echo and not count:
                choice = self._choice(index, self._echoes[index // self._n], None, (), None)
                yield template.event(choice, mark)
        async with aclosing(self.run.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                index, count = piece.index, mark.counts[piece.index] + len(piece.token_ids)
                ended = piece.finish_reason is not None
                mark = mark.advanced(index, count, ended)
                choice = self._choice(index, piece.text, piece.logprobs, piece.token_ids, piece.finish_reason)
                is_new = count > start.counts[index] or (ended and not start.ended[index])
                if is_new and (piece.text or piece.logprobs or ended or self._body.return_token_ids):
                    yield template.event(choice, mark)
        if wants_usage and not start.usage_sent:
            usage = {**usage_of(self.run.outputs), "sampling": self.run.sampling}
            yield template.last(usage, mark.with_usage())
