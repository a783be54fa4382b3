"""Cases of attention: decode over a long context, and a layer's prefill, split into attention and the rest."""

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.ops.layer import DecoderLayer, fill_cache, make_cache, make_layers, num_blocks, prefill_layer
from benchmarks.ops.rotation import Rotation
from benchmarks.ops.settings import OpsSettings
from surefoot.bench.harness.timing import Case, timed
from surefoot.ops import Backend, Chunks, attention
from surefoot.ops.arrays import empty

REQUESTS = (1, 8)  # numbers of requests that decode in one call


class DecodeContexts:
    """Contexts that together exceed the processor's cache. Their blocks are scattered, as after a while of serving."""

    def __init__(self, backend: Backend, settings: OpsSettings) -> None:
        self._backend, self._settings, self._model = backend, settings, settings.headline
        blocks = num_blocks(settings.context)
        self.context_bytes = blocks * make_cache(backend, self._model, 1).data.nbytes
        wanted = -(-settings.kv_bytes // self.context_bytes)
        self._count = -(-wanted // max(REQUESTS)) * max(REQUESTS)
        self._cache = make_cache(backend, self._model, self._count * blocks)
        fill_cache(backend, self._cache, 0, blocks * self._cache.block_size)
        for i in range(1, self._count):
            self._cache.data[i * blocks : (i + 1) * blocks] = self._cache.data[:blocks]
        shuffled = np.random.default_rng(0).permutation(self._cache.num_blocks)
        self._tables = shuffled.astype(np.int64).reshape(self._count, blocks)

    def case(self, requests: int) -> Case:
        nbytes = requests * self.context_bytes
        calls = int(max(1, min(self._settings.sample_bytes / nbytes, self._count / requests)))
        samples = range(0, self._count - calls * requests + 1, calls * requests)
        programs = [self._program(requests, range(start, start + calls * requests, requests)) for start in samples]
        tokens = self._settings.context
        name = f"decode/{tokens:,} tokens/{requests} request{'s' * (requests > 1)}"
        labels: dict[str, str | int] = {"model": self._model.name, "tokens": tokens, "requests": requests}
        return Case(name, "attention decode", Rotation(programs), calls, nbytes, labels=labels)

    def _program(self, requests: int, firsts: range) -> Callable[[], None]:
        """A recorded program with a call for each group of `requests` contexts. firsts: the first context of each."""
        model = self._model
        q = np.random.default_rng(1).standard_normal((requests, model.heads, model.head_dim), np.float32)
        out = empty(q.shape, np.float32)
        starts = np.arange(requests + 1, dtype=np.int64)
        lengths = np.full(requests, self._settings.context, np.int64)
        with self._backend.record() as program:
            for first in firsts:
                chunks = Chunks(starts, lengths, self._tables[first : first + requests])
                attention(self._backend, q, self._cache, chunks, model.head_dim**-0.5, out=out)
        return program.run


def attention_cases(backend: Backend, settings: OpsSettings) -> Iterator[Case]:
    contexts = DecodeContexts(backend, settings)
    for requests in REQUESTS:
        yield contexts.case(requests)
    weights = make_layers(backend, settings.headline, "w8", 1)[0]
    for tokens in settings.prefills:
        layer = prefill_layer(backend, settings.headline, weights, tokens)
        yield _prefill_case(layer, tokens, "rest", layer.rest)  # first, since it writes the keys and values
        yield _prefill_case(layer, tokens, "attention", layer.attention)


def _prefill_case(layer: DecoderLayer, tokens: int, part: str, body: Callable[[], None]) -> Case:
    model = layer.model
    with layer.backend.record() as program:
        body()
    if part == "rest":  # two-limb products
        operations = 4.0 * tokens * sum(n * k for n, k in model.matrices.values())
    else:  # the causal half of both products in float; two limbs compute more
        operations = 2.0 * tokens * tokens * model.heads * model.head_dim
    return Case(
        f"prefill/{tokens:,} tokens/{part}", "layer", timed(program.run), operations=operations,
        labels={"model": model.name, "tokens": tokens, "part": part},
    )  # fmt: skip
