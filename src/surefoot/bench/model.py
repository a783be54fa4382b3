"""`surefoot bench model`: one user's prompts and tokens through the whole engine, beside the limits and llama.cpp."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from surefoot.api import LLM, SamplingParams
from surefoot.bench.disturbance import usage
from surefoot.bench.facts import facts_of_run, machine_facts, progress
from surefoot.bench.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.limits import gauges
from surefoot.bench.model_results import ModelResults, describe_model
from surefoot.bench.peers.llama_tools import LlamaBench
from surefoot.bench.timing import BANDWIDTH, INT8_PEAK, Budget, Case, Interleaver, Label, ratios, shares_of_limit
from surefoot.core import Request
from surefoot.models import linear_products

Say = Callable[[str], None]

MIB = 1 << 20
NO_PEER = "llama.cpp takes no part: add --peers (its native build takes some minutes the first time)"


@dataclass(frozen=True)
class ModelSettings:
    """prefills: those that the model's context holds are measured."""

    prefills: tuple[int, ...] = (512, 2048)
    decode_context: int = 128
    decode_tokens: int = 32  # of one sample
    seconds: float = 300
    footprint_bytes: int = 1024 * MIB
    float_format: str = "w8"


QUICK = ModelSettings(decode_tokens=16, seconds=40, footprint_bytes=512 * MIB)


class OneUser:
    """Drives the engine as a single request at a time, greedily, with prompts that were never seen before."""

    def __init__(self, llm: LLM) -> None:
        self._llm, self._ids = llm, count()
        self._rng = np.random.default_rng(0)
        self.native_share: list[float] = []  # of the decode steps of each sample

    def prefill(self, num_tokens: int) -> float:
        """Seconds from the request to its first token."""
        start = time.perf_counter()
        self._start(num_tokens, 1)
        self._finish()
        return time.perf_counter() - start

    def decode(self, context: int, num_tokens: int) -> float:
        """Seconds for the tokens after the first."""
        self._start(context, num_tokens + 1)
        engine, backend = self._llm.engine, self._llm.backend
        while not any(event.tokens for event in engine.step()):
            pass
        start, native = time.perf_counter(), backend.native_seconds
        self._finish()
        seconds = time.perf_counter() - start
        self.native_share.append((backend.native_seconds - native) / seconds)
        return seconds

    def _start(self, num_tokens: int, num_new: int) -> None:
        prompt = tuple(self._rng.integers(0, self._llm.config.vocab_size, num_tokens).tolist())
        params = SamplingParams(temperature=0, max_tokens=num_new, ignore_eos=True)
        self._llm.engine.add(Request(f"bench {next(self._ids)}", prompt, params))

    def _finish(self) -> None:
        while self._llm.engine.has_work:
            self._llm.engine.step()


def run_model(
    model: str, settings: ModelSettings, variant: str | None, threads: int | None, peers: bool | None, say: Say
) -> ModelResults:
    say("loading")
    start = time.perf_counter()
    llm = LLM(
        model, variant=variant, threads=threads, max_context=max(settings.prefills) + 64, max_running=1,
        speculate="off", float_format=settings.float_format,
    )  # fmt: skip
    load_seconds = time.perf_counter() - start
    settings = replace(settings, prefills=tuple(one for one in settings.prefills if one < llm.max_context))
    bench, absent = _find_peer(model, llm, peers, say)
    backend, before = llm.backend, usage()
    facts, start = machine_facts(backend), time.perf_counter()
    user = OneUser(llm)
    cases = [*_own_cases(llm, user, settings), *(_peer_cases(bench, settings) if bench else [])]
    limits = gauges(backend, settings.footprint_bytes)
    interleaver = Interleaver(limits, Budget(settings.seconds), report=lambda *at: say(progress(*at)))
    measurements = interleaver.run(cases)
    absent |= interleaver.failures
    described = describe_model(model, llm, load_seconds) | {"decode_bytes": llm.read_bytes(settings.decode_context)}
    figures = [question.figure() for question in _questions(measurements, user, absent)]
    named = {"llama.cpp": bench.describe()} if bench else {}
    return ModelResults(measurements, figures, described, named, absent, facts | facts_of_run(before, start))


def _find_peer(model: str, llm: LLM, wanted: bool | None, say: Say) -> tuple[LlamaBench | None, dict[str, str]]:
    if not wanted:
        return None, {"llama.cpp": NO_PEER}
    if not model.endswith(".gguf"):
        return None, {"llama.cpp": "reads GGUF files only"}
    try:
        return LlamaBench.install(Path(model), llm.backend.threads, say), {}
    except (OSError, RuntimeError) as failure:
        return None, {"llama.cpp": str(failure)}


def _own_cases(llm: LLM, user: OneUser, settings: ModelSettings) -> Iterator[Case]:
    products = linear_products(llm.model)
    for tokens in settings.prefills:
        # A limb of activations is one product for every weight, whatever the weight's own limbs cost us.
        yield Case(
            f"prefill/{tokens}", "prefill", partial(user.prefill, tokens),
            operations=2.0 * products * tokens, labels={"tokens": tokens},
        )  # fmt: skip
    context, num_tokens = settings.decode_context, settings.decode_tokens
    nbytes = llm.read_bytes(context + num_tokens // 2)
    yield Case("decode/1", "decode", lambda: user.decode(context, num_tokens), num_tokens, nbytes)


def _peer_cases(bench: LlamaBench, settings: ModelSettings) -> Iterator[Case]:
    for tokens in settings.prefills:
        yield Case(
            f"llama.cpp/prefill/{tokens}", "prefill", partial(bench.prefill, tokens),
            engine="llama.cpp", labels={"tokens": tokens},
        )  # fmt: skip
    num_tokens = settings.decode_tokens
    yield Case("llama.cpp/decode/1", "decode", lambda: bench.decode(num_tokens), num_tokens, engine="llama.cpp")


def _questions(found: Measurements, user: OneUser, absent: dict[str, str]) -> Iterator[Question]:
    def decode() -> float:
        return median(shares_of_limit(select(found, "decode"), BANDWIDTH))

    def prefill(tokens: int) -> float:
        return median(shares_of_limit(select(found, "prefill", tokens=tokens), INT8_PEAK))

    def against(kind: str, **labels: Label) -> float:
        if reason := absent.get("llama.cpp"):
            raise MissingError(reason)
        return median(ratios(select(found, kind, "llama.cpp", **labels), select(found, kind, "surefoot", **labels)))

    def overhead() -> float:
        return 1 - median(user.native_share[1:])

    yield Question("decode_of_bandwidth", "decode, 1 user: of bandwidth", Target(0.80), decode)
    for tokens in (512, 2048):
        meaning = f"prefill of {tokens:,} tokens: of int8 peak"
        yield Question(f"prefill{tokens}_of_peak", meaning, Target(0.40), partial(prefill, tokens))
    yield Question("decode_vs_llamacpp", "decode: over llama.cpp", Target(1.0), lambda: against("decode"))
    for tokens in (512, 2048):
        name, meaning = f"prefill{tokens}_vs_llamacpp", f"prefill of {tokens:,} tokens: over llama.cpp"
        yield Question(name, meaning, Target(5.0), partial(against, "prefill", tokens=tokens))
    limit = Target(0.05, at_least=False)
    yield Question("python_overhead_share", "time of a decode step outside of native code", limit, overhead)
