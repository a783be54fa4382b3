"""`LLM`: a loaded model that generates, for lists of prompts, for conversations, or as a stream."""

import itertools
import secrets
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from numbers import Number
from operator import index
from pathlib import Path
from typing import Any

from surefoot.api.defaults import SamplingDefaults
from surefoot.api.live import LiveRequest
from surefoot.api.loading import (
    BLOCK_SIZE,
    fit_context,
    free_bytes,
    load_model,
    make_engine,
    make_runner,
    plan_memory,
)
from surefoot.api.opening import OpenModel, open_model
from surefoot.api.outputs import Piece, RequestOutput
from surefoot.api.speculation import AUTO, load_speculation
from surefoot.core import Request, SamplingParams, ServiceClass
from surefoot.models import Model, ModelConfig, decode_bytes
from surefoot.ops import Backend, KvForm, best_read_bandwidth, huge_empty
from surefoot.runner import slot_bytes
from surefoot.sampling import Grammars
from surefoot.text import ChatTemplate, Tokenizer, without_marks
from surefoot.weights import PackedCache, Report

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]
BANDWIDTH_BUFFER_BYTES = 256 << 20


class LLM:
    """model: a GGUF file, a Hugging Face folder, a Hugging Face id, or what `open_model` made of one. Not for several
    threads at once.

    float_format: what float weights become (w8, w4, f32 …); quantised files keep their own codes.
    max_context: tokens of prompt and answer together; the model's own by default. Answers that memory has no room for
    end with finish_reason "memory"; a given max_context must fit.
    max_running: samples that share a step. max_chunk: prompt tokens of one request in a step. kv_bytes: for keys and
    values; by default most of what the memory limit leaves. None of these shows in the output.
    packed_cache: a folder to keep packed weights in: the next load is then little more than reading them.
    speculate: how tokens are guessed ahead: auto, lookup (from text before), draft:MODEL (a smaller model with the same
    tokens or a draft head's file, and lookup), off. Depths follow measured gain, down to none. Nor does this show.
    sampling: values (temperature, top_k …) that take the place of the model's own in `default_sampling`.
    chat_template: a file of Jinja or the name of a common format (chatml, llama3 …), instead of the model's own.
    report: called while weights are loaded, with how much is done and how much there is.
    """

    def __init__(
        self,
        model: str | Path | OpenModel,
        *,
        float_format: str = "w8",
        max_context: int | None = None,
        max_running: int = 32,
        max_chunk: int = 512,
        kv_bytes: int | None = None,
        block_size: int = BLOCK_SIZE,
        prefix_caching: bool = True,
        variant: str | None = None,
        threads: int | None = None,
        kv_form: KvForm = KvForm.KEYS_TWO_LIMBS,
        packed_cache: str | Path | PackedCache | None = None,
        speculate: str = AUTO,
        sampling: Mapping[str, Any] | None = None,
        chat_template: str | Path | None = None,
        report: Report = lambda done, total: None,
    ) -> None:
        def fits(backend: Backend, config: ModelConfig, weights: int) -> None:
            nbytes = free_bytes(config, max_running, promised=weights) if kv_bytes is None else kv_bytes
            sizes = slot_bytes(backend, config, kv_form, block_size)
            fit_context(config, sizes, nbytes, max_context, max_running, max_chunk, block_size)

        opened = open_model(model, sampling, chat_template)
        self.path: Path = opened.place
        self.sampling_defaults: SamplingDefaults = opened.sampling
        loaded = load_model(opened, float_format, variant, threads, packed_cache, report=report, fits=fits)
        speculation = load_speculation(speculate, loaded, float_format)
        self.backend: Backend = loaded.backend
        self.model: Model = loaded.model
        self.config: ModelConfig = loaded.model.config
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.chat_template: ChatTemplate = loaded.template
        sizes = slot_bytes(self.backend, self.config, kv_form, block_size)
        nbytes = free_bytes(self.config, max_running, speculation.most_drafts) if kv_bytes is None else kv_bytes
        draft_bytes = speculation.share(nbytes)
        nbytes -= draft_bytes
        self.room = plan_memory(self.model, sizes, nbytes, max_context, max_running, max_chunk, block_size)
        self.max_context: int = self.room.scheduling.max_context  # tokens that memory holds
        self.context_length: int = self.room.scheduling.context_length or self.max_context  # where answers end
        self.runner = make_runner(loaded, self.room, kv_form, speculation.most_drafts)
        self.grammars = Grammars(self.tokenizer, self.tokenizer.ids.ends)
        self.speculator = speculation.start(loaded, max_running, self.max_context, draft_bytes)
        self.engine = make_engine(self.room, self.runner, self.grammars, prefix_caching, self.speculator)
        self._weight_bytes = decode_bytes(loaded.model)
        self._live: dict[str, LiveRequest] = {}
        self._ids = itertools.count()

    @property
    def default_sampling(self) -> SamplingParams:
        """How tokens are chosen where no parameters are given: as the model's files advise, or else surefoot's own way.
        `SamplingParams(...)` has nothing of it; `replace(llm.default_sampling, max_tokens=20)` has."""
        return self.sampling_defaults.params

    # ---- text ----

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt (a text, or token ids). use_tqdm: a progress bar; by default where somebody looks."""
        listed: Sequence[Prompt] = [prompts] if _is_prompt(prompts) else prompts  # type: ignore[assignment,list-item]
        each = _for_each(listed, params)
        requests = [self._request(prompt, one) for prompt, one in zip(listed, each, strict=True)]
        texts = [prompt if isinstance(prompt, str) else None for prompt in listed]
        return self._collect(requests, texts, use_tqdm, continues=True)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        use_tqdm: bool | None = None,
        **variables: Any,
    ) -> list[RequestOutput]:
        """The assistant's answer to one conversation or to each of several, by the model's own chat template.

        variables: for the template, as enable_thinking; add_generation_prompt, continue_final_message too.
        """
        is_one = not messages or isinstance(messages[0], Mapping)
        listed: Sequence[Messages] = [messages] if is_one else messages  # type: ignore[assignment,list-item]
        prompts = [self.render(one, tools=tools, **variables) for one in listed]
        requests = [
            self._request(self.encode_rendered(prompt), one)
            for prompt, one in zip(prompts, _for_each(prompts, params), strict=True)
        ]
        return self._collect(requests, [without_marks(prompt) for prompt in prompts], use_tqdm, continues=False)

    def embed(self, prompts: Prompt | Sequence[Prompt], *, use_tqdm: bool | None = None) -> list[RequestOutput]:
        """The mean of the model's last hidden states over each prompt's tokens: `embedding` of each output."""
        listed: Sequence[Prompt] = [prompts] if _is_prompt(prompts) else prompts  # type: ignore[assignment,list-item]
        params = SamplingParams(max_tokens=1, seed=0)
        requests = [replace(self._request(prompt, params), embeds=True) for prompt in listed]
        texts = [prompt if isinstance(prompt, str) else None for prompt in listed]
        return self._collect(requests, texts, use_tqdm, continues=True)

    def stream(
        self,
        prompt: Prompt | Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> Generator[Piece, None, None]:
        """Pieces of the answer to one prompt or conversation as they come; the last carries the whole output.

        Leaving the loop early ends the request. Several streams may be read in turns.
        """
        is_chat = not _is_prompt(prompt)
        if is_chat:
            text: str | None = self.render(prompt, tools=tools, **variables)  # type: ignore[arg-type]
            request = self._request(self.encode_rendered(text or ""), params, ServiceClass.INTERACTIVE)
        else:
            text = prompt if isinstance(prompt, str) else None
            request = self._request(prompt, params, ServiceClass.INTERACTIVE)  # type: ignore[arg-type]
        live = self._start(request, text and without_marks(text), continues=not is_chat)
        return self._pieces(live)

    def render(self, messages: Messages, **variables: Any) -> str:
        """The conversation as the prompt that the model's template makes of it. Control tokens that stand in the
        messages are text, and broken up by marks, which `encode_rendered` takes out."""
        return self.chat_template.render(self.tokenizer.shield(messages), **self.tokenizer.shield(variables))

    def encode_rendered(self, text: str) -> list[int]:
        """The tokens of what `render` made."""
        return self.tokenizer.encode_rendered(text)

    def encode_question(self, text: str) -> list[int]:
        """The tokens of a conversation that this begins; of the text itself where the model has no chat template."""
        if not self.chat_template.templates:
            return self.tokenizer.encode(text)
        return self.encode_rendered(self.render([{"role": "user", "content": text}]))

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, *, rendered: bool = False) -> LiveRequest:
        """Add a request that `step` moves on, with all others, until it is done. For those who feed many by themselves.

        rendered: a conversation's prompt, made by `render`.
        """
        tokens = self.encode_rendered(prompt) if rendered and isinstance(prompt, str) else prompt
        text = prompt if isinstance(prompt, str) else None
        return self._start(self._request(tokens, params), text, continues=not rendered)

    def step(self) -> None:
        """One step of all requests."""
        self._step()

    def leave(self, live: LiveRequest) -> None:
        """Done with it: ends it if it has not ended."""
        self._leave(live)

    # ---- speed ----

    def read_bytes(self, num_tokens: int) -> int:
        """What must be read to decode one token that has so many before it: weights, keys and values."""
        return self._weight_bytes + self.runner.kv.read_bytes(num_tokens)

    def measure_bandwidth(self, seconds: float = 0.3) -> float:
        """Bytes per second that this model's threads read from memory."""
        buffer = huge_empty(BANDWIDTH_BUFFER_BYTES)
        buffer[::4096] = 1  # untouched pages would all be the same page of zeros
        return best_read_bandwidth(self.backend, buffer, seconds)

    # ---- requests ----

    def _request(
        self, prompt: Prompt, params: SamplingParams | None, service: ServiceClass = ServiceClass.BATCH
    ) -> Request:
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
        if not tokens:
            raise ValueError("the prompt is empty: give at least one character or token")
        if max(tokens) >= self.config.vocab_size:
            raise ValueError(f"token {max(tokens)} is beyond the vocabulary of {self.config.vocab_size}")
        params = params or self.default_sampling
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        number, ends = f"{next(self._ids)}", self.tokenizer.ids.ends
        return Request(number, tuple(tokens), params, service=service, eos_token_ids=ends)

    def _collect(
        self, requests: Sequence[Request], texts: Sequence[str | None], use_tqdm: bool | None, continues: bool
    ) -> list[RequestOutput]:
        lives: list[LiveRequest] = []
        try:
            for request, text in zip(requests, texts, strict=True):
                lives.append(self._start(request, text, continues))
            with _progress(len(lives), use_tqdm) as report:
                while not all(live.is_done for live in lives):
                    self._step()
                    report(sum(live.is_done for live in lives), sum(live.num_tokens for live in lives))
            return [live.output() for live in lives]
        finally:
            for live in lives:
                self._leave(live)

    def _pieces(self, live: LiveRequest) -> Generator[Piece, None, None]:
        try:
            while not live.is_done or live.pieces:
                while not live.pieces:
                    if live.request.id not in self._live:
                        raise RuntimeError(
                            "the request was lost when another one's step was interrupted: start it anew"
                        )
                    self._step()
                yield live.pieces.popleft()
        finally:
            self._leave(live)

    def _start(self, request: Request, text: str | None, continues: bool) -> LiveRequest:
        self.engine.add(request)
        live = self._live[request.id] = LiveRequest(self.tokenizer, request, text, continues)
        return live

    def _leave(self, live: LiveRequest) -> None:
        if not live.is_done:
            self.engine.abort(live.request.id)
        self._live.pop(live.request.id, None)

    def _step(self) -> None:
        try:
            events = self.engine.step()
        except BaseException:  # Ctrl-C too: half a step cannot be gone on from
            self.engine.reset()
            self._live.clear()
            raise
        for event in events:
            live = self._live.get(event.key.request)
            if live is not None and live.feed(event):
                last = self.engine.finish(event.key)
                if last is not None:
                    live.account(last)
            if live is not None:
                live.close_piece()


def _is_prompt(prompt: object) -> bool:
    """A text or token ids, as opposed to a list of prompts or of messages."""
    return isinstance(prompt, str) or (isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Number))


def token_ids(tokens: Sequence[int]) -> list[int]:
    """Whole numbers of any library, as Python's own. Raises ValueError for others: 1.5 must not become token 1."""
    try:
        if not any(isinstance(token, bool) for token in tokens):
            return [index(token) for token in tokens]
    except TypeError:
        pass
    raise ValueError("a prompt is a text or a list of token ids, which are whole numbers")


def _for_each(
    prompts: Sequence[object], params: SamplingParams | Sequence[SamplingParams] | None
) -> Sequence[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return [params] * len(prompts)
    if len(params) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts, but {len(params)} sampling parameters: give one, or one for each")
    return params


@contextmanager
def _progress(num_requests: int, wanted: bool | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda num_done, num_tokens: None
        return
    with import_module("surefoot.api.request_bar").request_bar(num_requests) as report:  # rich, for who looks on
        yield report
