"""Prompts: conversations and texts become token ids. This happens on other threads, since a long text takes a while."""

import asyncio
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from surefoot.api.async_llm import AsyncLLM
from surefoot.machine.priority import yield_processor
from surefoot.server.access.shares import Caller, Turns
from surefoot.server.errors import ContextOverflow, bad_request
from surefoot.server.system_messages import SystemPlaces, placed
from surefoot.text import TEMPLATE_NAMES, ChatTemplateError, NoFimTokens, OtherFile, fim_prompt

T = TypeVar("T")
# Of the templates by their names, how they are rendered, and the ids of special tokens by their texts.
Trial = Callable[[Mapping[str, str], Callable[..., str], Mapping[str, int]], T]
LONG_CHARACTERS = 16 << 10  # about 10 ms to tokenise
SHORT_THREADS = 2


class Encoding:
    """Threads that tokenise. Users take turns, so that one user's texts do not hold up another's.

    Long texts have a thread of their own. It yields the processor to the engine's threads and to short texts; while it
    tokenises it does not hold the GIL.
    """

    def __init__(self) -> None:
        self._short_turns, self._long_turns = Turns(SHORT_THREADS), Turns(1)
        self._long_thread = ThreadPoolExecutor(1, "surefoot-long-texts", initializer=yield_processor)

    async def run(self, num_characters: int, work: Callable[[], T]) -> T:
        if num_characters <= LONG_CHARACTERS:
            async with self._short_turns.turn():
                return await asyncio.to_thread(work)
        async with self._long_turns.turn():
            return await asyncio.get_running_loop().run_in_executor(self._long_thread, work)


class PromptEncoder:
    """Renders and tokenises. Users take turns at both."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._longest_piece = max(map(len, llm.tokenizer.pieces))
        self._template_turns, self._encoding = Turns(1), Encoding()
        self._public: list[tuple[int, ...]] = []  # beginnings of prompts that all users may share
        self._places: SystemPlaces | None = None  # of the model's template, once it was tried
        self._trials: dict[Trial[Any], Any] = {}  # what trials with the template have shown

    async def encode(self, text: str, *, rendered: bool = False, add_special: bool = True) -> list[int]:
        """The text's token ids. rendered: `render` made it. add_special: put the model's first token before it."""
        self._check_characters(len(text))
        tokenizer = self._llm.tokenizer
        if rendered:
            return await self._encoding.run(len(text), partial(tokenizer.encode_rendered, text))
        return await self._encoding.run(len(text), partial(tokenizer.encode, text, add_special=add_special))

    async def encode_infill(self, prefix: str | list[int], suffix: str, others: Sequence[OtherFile]) -> list[int]:
        """The token ids of a prompt that asks for the text between prefix and suffix."""
        length = len(prefix) + len(suffix) + sum(len(other.name) + len(other.text) for other in others)
        self._check_characters(length)
        try:
            return await self._encoding.run(length, partial(fim_prompt, self._llm.tokenizer, prefix, suffix, others))
        except NoFimTokens as error:
            raise bad_request(str(error), "suffix", "no_fill_in") from error

    def _check_characters(self, count: int) -> None:
        """Refuse a text too long for the context before it is tokenised: no token is longer than the longest piece."""
        if count > self._llm.max_context * self._longest_piece:
            raise ContextOverflow(math.ceil(count / self._longest_piece), self._llm.max_context)

    async def tried(self, trial: Trial[T]) -> T:
        """What a trial with the model's template shows. Each trial is made once."""
        if trial not in self._trials:
            async with self._template_turns.turn():
                if trial not in self._trials:  # the first requests come together
                    self._trials[trial] = await asyncio.to_thread(self._try, trial)
        found: T = self._trials[trial]
        return found

    def _try(self, trial: Trial[T]) -> T:
        tokenizer = self._llm.tokenizer
        special = {tokenizer.text_of(token): token for token in sorted(tokenizer.special)}
        return trial(self._llm.chat_template.templates, self._llm.render, special)

    async def render(self, messages: Sequence[dict[str, Any]], **variables: Any) -> str:
        if not self._llm.chat_template.templates:
            raise bad_request(
                "this model has no chat template, so it continues text and does not chat: use /v1/completions, or "
                f"start the server with --chat-template FILE or one of {', '.join(TEMPLATE_NAMES)}",
                "messages", "no_chat_template",
            )  # fmt: skip
        try:
            async with self._template_turns.turn():
                return await asyncio.to_thread(self._render, messages, **variables)
        except (ChatTemplateError, ValueError) as error:
            raise bad_request(str(error), "messages") from error

    def _render(self, messages: Sequence[dict[str, Any]], **variables: Any) -> str:
        if any(message["role"] == "system" for message in messages):
            self._places = self._places or SystemPlaces.probe(self._llm.render)
            messages = placed(messages, self._places)
        return self._llm.render(messages, **variables)

    def share(self, prompts: Sequence[Sequence[int]]) -> None:
        """What these prompts all begin with is no secret."""
        first, *others = prompts
        self._public.append(functools.reduce(_common, others, tuple(first)))

    def num_public(self, prompt: Sequence[int]) -> int:
        """Tokens at the prompt's beginning that all users may share."""
        return max((len(_common(prompt, known)) for known in self._public), default=0)

    def check_length(self, caller: Caller, num_prompt: int, max_tokens: int | None) -> int:
        """The answer's token limit: set by model, key and request, never by this machine's memory."""
        context = min(self._llm.context_length, caller.max_context or self._llm.context_length)
        most = min(context, self._llm.max_context) - 1  # one token is the answer's
        if num_prompt > most:
            raise ContextOverflow(num_prompt, most)
        return min(max_tokens or context, context - num_prompt)

    def check_tokens(self, tokens: Sequence[int], param: str = "prompt") -> None:
        if not tokens:
            raise bad_request(f"the {param} is empty: give at least one character or token", param)
        if max(tokens) >= self._llm.config.vocab_size:
            raise bad_request(f"token {max(tokens)} is beyond the vocabulary", param)


def _common(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(token for token, _ in pairs)
