"""`LLM`: a loaded model that generates for lists of prompts, for conversations, or as a stream."""

import itertools
import secrets
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from numbers import Number
from operator import index
from pathlib import Path
from typing import Any

from surefoot.api.answers import LiveRequest, Piece, Ranked, RequestOutput
from surefoot.api.defaults import SamplingDefaults
from surefoot.api.loading import load_model
from surefoot.api.opening import OpenModel, chosen_format, open_model
from surefoot.api.pooling import PoolingConfig, embedding_pooling, unit
from surefoot.api.prompt_cache import NoTier, PromptCache, open_tier
from surefoot.api.reranking import Reranker, find_reranker, needed_reranker, ranked
from surefoot.api.speculation import AUTO, load_speculation
from surefoot.cache import DiskTier
from surefoot.core import Pooling, Request, SamplingParams, ServiceClass
from surefoot.engine import BLOCK_SIZE, MemoryRequest, fit_context, free_bytes, make_engine, make_runner, plan_memory
from surefoot.formats import AUTO_FORMAT
from surefoot.models import Model, ModelConfig
from surefoot.ops import Backend, KvForm, bandwidth_buffer, best_read_bandwidth
from surefoot.runner import slot_bytes
from surefoot.sampling import Grammars
from surefoot.speed import decode_bytes
from surefoot.text import ChatTemplate, Tokenizer, without_marks
from surefoot.weights import ModelDigests, PackedCache, Report, hash_in_background

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]
BANDWIDTH_BUFFER_BYTES = 256 << 20


class LLM:
    """A model in memory. Use it from one thread at a time.

    model: a GGUF file, a Hugging Face folder, a Hugging Face id, or a model opened by `open_model`.
    float_format: the format to which float weights are quantised (w8, w4, f32 …; auto: w8, and w12 for encoders);
    quantised files keep their own codes.
    max_context: tokens of prompt and answer together; by default the model's own. A given max_context must fit into
    memory. Without one, an answer for which memory is too small ends with finish_reason "memory".
    max_running: samples that share a step. max_chunk: prompt tokens of one request in a step. kv_bytes: memory for keys
    and values; by default most of what the memory limit leaves. None of these changes the output.
    packed_cache: a folder for packed weights, from which the next load is much faster.
    prompt_cache: a folder for keys and values of prompts and answers, which later prompts that begin alike need not
    compute. It outlives the process; `close` writes the rest. It does not change the output.
    speculate: how draft tokens are made: auto (by the model's own drafting layer, if its files have one, and lookup),
    lookup (from earlier text), draft:MODEL (a smaller model with the same tokens, an EAGLE-3 head, Medusa heads, or
    the file of a draft head, and lookup), off. Draft length follows the measured gain, down to none. This does not
    change the output either.
    sampling: values (temperature, top_k …) that replace the model's own in `default_sampling`.
    chat_template: a Jinja file or the name of a common format (chatml, llama3 …), instead of the model's own.
    pooling: mean, cls, last or rank, for `embed` and `rerank`, instead of what the model's files say.
    adapter: the task of an adapter that the model's files have (jina-embeddings-v3).
    report: called while weights are loaded, with the amounts done and in total.
    """

    def __init__(
        self,
        model: str | Path | OpenModel,
        *,
        float_format: str = AUTO_FORMAT,
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
        prompt_cache: str | Path | PromptCache | None = None,
        speculate: str = AUTO,
        sampling: Mapping[str, Any] | None = None,
        chat_template: str | Path | None = None,
        pooling: str | None = None,
        adapter: str | None = None,
        report: Report = lambda done, total: None,
    ) -> None:
        def memory_request(backend: Backend, config: ModelConfig, nbytes: int) -> MemoryRequest:
            sizes = slot_bytes(backend, config, kv_form, block_size)
            return MemoryRequest(sizes, nbytes, max_context, max_running, max_chunk, block_size)

        def fits(backend: Backend, config: ModelConfig, weights: int) -> None:
            nbytes = free_bytes(config, max_running, unread_bytes=weights) if kv_bytes is None else kv_bytes
            fit_context(config, memory_request(backend, config, nbytes))

        opened = open_model(model, sampling, chat_template, pooling, adapter)
        self.path: Path = opened.path
        self.sampling_defaults: SamplingDefaults = opened.sampling
        float_format = chosen_format(float_format, opened.checkpoint.metadata)
        self.float_format, self.kv_form = float_format, kv_form
        self.adapter: str | None = opened.adapter
        self._digests = opened.digests
        loaded = load_model(opened, float_format, variant, threads, packed_cache, report=report, fits=fits)
        self.pooling: PoolingConfig | None = opened.pooling  # None: the model only generates
        is_reranker = opened.pooling is not None and opened.pooling.ranks
        self.reranker: Reranker | None = find_reranker(opened, loaded) if is_reranker else None
        speculation = load_speculation(speculate, loaded, float_format)
        self.backend: Backend = loaded.backend
        self.model: Model = speculation.fitted(loaded.model)
        self.config: ModelConfig = self.model.config
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.chat_template: ChatTemplate = loaded.template
        nbytes = free_bytes(self.config, max_running, speculation.max_drafts) if kv_bytes is None else kv_bytes
        draft_bytes = speculation.share(nbytes)
        request = memory_request(self.backend, self.config, nbytes - draft_bytes)
        self.capacity = plan_memory(self.model, request, self.backend.variant, self.backend.threads)
        self.max_context: int = self.capacity.scheduling.max_context  # tokens that memory holds
        self.context_length: int = self.capacity.scheduling.context_length or self.max_context  # where answers end
        self.runner = make_runner(self.backend, self.model, self.capacity, kv_form, speculation.max_drafts)
        self.grammars = Grammars(self.tokenizer, self.tokenizer.ids.ends)
        self.speculator = speculation.start(self.runner, self.capacity.scheduling, draft_bytes)
        tier = self._open_tier(prompt_cache if prefix_caching else None, speculation.head_name)
        self.disk_tier: DiskTier | None = tier if isinstance(tier, DiskTier) else None
        self.no_disk_reason: str = tier.reason if isinstance(tier, NoTier) else ""
        self.engine = make_engine(
            self.capacity, self.runner, self.grammars, prefix_caching, self.speculator, self.disk_tier
        )
        self._weight_bytes = decode_bytes(loaded.model)
        self._live: dict[str, LiveRequest] = {}
        self._ids = itertools.count()

    @property
    def default_sampling(self) -> SamplingParams:
        """The parameters of requests without parameters: those that the model's files recommend, else surefoot's.

        `SamplingParams(...)` does not include them; `replace(llm.default_sampling, max_tokens=20)` does.
        """
        return self.sampling_defaults.params

    def close(self) -> None:
        """Write what the prompt cache has not written yet, and let another process use it. No request may follow."""
        self.engine.close()

    def _open_tier(self, cache: str | Path | PromptCache | None, head: str) -> DiskTier | NoTier:
        if cache is None:
            return NoTier("no folder is given")
        settings = cache if isinstance(cache, PromptCache) else PromptCache(Path(cache))
        return open_tier(settings, self.path, self._digests, self.float_format, self.kv_form, self.runner.kv, head)

    def hash_files(self) -> ModelDigests:
        """Hashes of the model's files. Waits for a thread that was started for it (`OpenModel.hashing`)."""
        if self._digests is None:
            self._digests = hash_in_background(self.path, None)
        return self._digests.result()

    # ---- text ----

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt (a text, or token ids). use_tqdm: show a progress bar; by default if stderr is a
        terminal."""
        listed, texts = _listed(prompts)
        each = _for_each(listed, params)
        requests = [self._request(prompt, prompt_params) for prompt, prompt_params in zip(listed, each, strict=True)]
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
        """The assistant's answers to one conversation or to each of several, by the model's chat template.

        variables: of the template, such as enable_thinking, add_generation_prompt or continue_final_message.
        """
        is_one = not messages or isinstance(messages[0], Mapping)
        listed: Sequence[Messages] = [messages] if is_one else messages  # type: ignore[assignment,list-item]
        prompts = [self.render(conversation, tools=tools, **variables) for conversation in listed]
        requests = [
            self._request(self.encode_rendered(prompt), prompt_params)
            for prompt, prompt_params in zip(prompts, _for_each(prompts, params), strict=True)
        ]
        return self._collect(requests, [without_marks(prompt) for prompt in prompts], use_tqdm, continues=False)

    def embed(self, prompts: Prompt | Sequence[Prompt], *, use_tqdm: bool | None = None) -> list[RequestOutput]:
        """A vector for each prompt, by the model's pooling: `embedding` of each output. It has length 1 if the model's
        files say so."""
        pooling = embedding_pooling(self.pooling)
        listed, texts = _listed(prompts)
        outputs = self._pool(listed, texts, pooling.pooling, use_tqdm)
        return [_normalized(output) for output in outputs] if pooling.normalizes else outputs

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        instruction: str | None = None,
        use_tqdm: bool | None = None,
    ) -> list[Ranked]:
        """The documents' scores for a query, highest first; equal ones in order. top_n: return at most this many."""
        reranker = needed_reranker(self.reranker)
        texts = [reranker.prompt(self.tokenizer, query, document, instruction) for document in documents]
        prompts = [reranker.tokens(self.encode_rendered(text)) for text in texts]
        outputs = self._pool(prompts, [None] * len(prompts), reranker.pooling, use_tqdm)
        return ranked([reranker.score(output.embedding or ()) for output in outputs])[:top_n]

    def _pool(
        self,
        prompts: Sequence[Prompt],
        texts: Sequence[str | None],
        pooling: Pooling,
        use_tqdm: bool | None,
    ) -> list[RequestOutput]:
        params = SamplingParams(max_tokens=1, seed=0)
        requests = [replace(self._request(prompt, params), pooling=pooling) for prompt in prompts]
        return self._collect(requests, texts, use_tqdm, continues=True)

    def stream(
        self,
        prompt: Prompt | Messages,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> Generator[Piece, None, None]:
        """Pieces of the answer to one prompt or conversation as they come; the last one carries the whole output.

        Leaving the loop early ends the request. Several streams may be read in turn.
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

    def render(self, messages: Messages, *, now: datetime | None = None, **variables: Any) -> str:
        """The conversation as a prompt, by the model's chat template. Control tokens that are written out in messages
        are text: marks break them up, which `encode_rendered` removes. now: the time that the template prints, if it
        prints one; by default the current time in UTC."""
        shield = self.tokenizer.shield
        return self.chat_template.render(shield(messages), now=now, **shield(variables))

    def encode_rendered(self, text: str) -> list[int]:
        """The token ids of a prompt that `render` made."""
        return self.tokenizer.encode_rendered(text)

    def encode_question(self, text: str) -> list[int]:
        """The token ids of a conversation with this one message; of the text itself if the model has no chat
        template."""
        if not self.chat_template.templates:
            return self.tokenizer.encode(text)
        return self.encode_rendered(self.render([{"role": "user", "content": text}]))

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, *, rendered: bool = False) -> LiveRequest:
        """Add a request, which `step` advances until it is done. For callers that feed many requests themselves.

        rendered: the prompt was made by `render`.
        """
        tokens = self.encode_rendered(prompt) if rendered and isinstance(prompt, str) else prompt
        text = prompt if isinstance(prompt, str) else None
        return self._start(self._request(tokens, params), text, continues=not rendered)

    # ---- speed ----

    def read_bytes(self, num_tokens: int) -> int:
        """Bytes read to decode one token after `num_tokens` others: weights, keys and values."""
        return self._weight_bytes + self.runner.kv.read_bytes(num_tokens)

    def measure_bandwidth(self, seconds: float = 0.3) -> float:
        """Bytes per second that this model's threads read from memory."""
        return best_read_bandwidth(self.backend, bandwidth_buffer(self.backend, BANDWIDTH_BUFFER_BYTES), seconds)

    # ---- requests ----

    def _request(
        self, prompt: Prompt, params: SamplingParams | None, service: ServiceClass = ServiceClass.BATCH
    ) -> Request:
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
        if not tokens:
            raise ValueError("the prompt is empty: give at least one character or token")
        if max(tokens) >= self.config.num_ids:
            raise ValueError(f"token {max(tokens)} is beyond the vocabulary of {self.config.num_ids}")
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
                    self.step()
                    report(sum(live.is_done for live in lives), sum(live.num_tokens for live in lives))
            return [live.output() for live in lives]
        finally:
            for live in lives:
                self.leave(live)

    def _pieces(self, live: LiveRequest) -> Generator[Piece, None, None]:
        try:
            while not live.is_done or live.pieces:
                while not live.pieces:
                    if live.request.id not in self._live:
                        raise RuntimeError(
                            "the request was lost when another one's step was interrupted: start it anew"
                        )
                    self.step()
                yield live.pieces.popleft()
        finally:
            self.leave(live)

    def _start(self, request: Request, text: str | None, continues: bool) -> LiveRequest:
        self.engine.add(request)
        live = self._live[request.id] = LiveRequest(self.tokenizer, request, text, continues)
        return live

    def leave(self, live: LiveRequest) -> None:
        """Drop a request; abort it if it has not ended."""
        if not live.is_done:
            self.engine.abort(live.request.id)
        self._live.pop(live.request.id, None)

    def step(self) -> None:
        """Run one step of the engine."""
        try:
            events = self.engine.step()
        except BaseException:  # Ctrl-C too: half a step cannot be resumed
            self.engine.reset()
            self._live.clear()
            raise
        for event in events:
            live = self._live.get(event.key.request)
            if live is not None and live.feed(event):
                last = self.engine.finish(event.key)
                if last is not None:
                    live.record_end(last)
            if live is not None:
                live.close_piece()


def _is_prompt(prompt: object) -> bool:
    """Whether this is one prompt (a text or token ids), not a list of prompts or messages."""
    return isinstance(prompt, str) or (isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Number))


def _listed(prompts: Prompt | Sequence[Prompt]) -> tuple[Sequence[Prompt], list[str | None]]:
    """The prompts, of which there may be one alone, and their texts."""
    listed: Sequence[Prompt] = [prompts] if _is_prompt(prompts) else prompts  # type: ignore[assignment,list-item]
    return listed, [prompt if isinstance(prompt, str) else None for prompt in listed]


def _normalized(output: RequestOutput) -> RequestOutput:
    return output if output.embedding is None else replace(output, embedding=unit(output.embedding))


def token_ids(tokens: Sequence[int]) -> list[int]:
    """Integers of any library as `int`. Raises ValueError for other numbers: 1.5 must not become token 1."""
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
def _progress(num_requests: int, use_tqdm: bool | None) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, or a function that does nothing. use_tqdm: see `LLM.generate`."""
    if not (sys.stderr.isatty() if use_tqdm is None else use_tqdm):
        yield lambda num_done, num_tokens: None
        return
    bars = import_module("surefoot.api.request_bar")  # imports rich, only if a bar is shown
    with bars.request_bar(num_requests) as report:
        yield report
