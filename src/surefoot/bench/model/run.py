"""Runs `surefoot bench model`: a single user's prefill and decode, compared with the machine's limits and llama.cpp."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.table import Table

from surefoot.api import LLM, SamplingParams
from surefoot.api.opening import open_model
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.loaded_model import gauges, load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import make_table, model_parts, model_title, share_of, title
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Case, Interleaver, TimeBudget
from surefoot.bench.model.figures import BATCH, LONG_PREFILL, model_questions
from surefoot.bench.peers.llama_tools import LlamaBench, build_for
from surefoot.core import Request
from surefoot.formats import AUTO_FORMAT
from surefoot.speed import linear_products
from surefoot.weights.memory import bytes_of_a_token

MIB = 1 << 20
NO_PEER = "llama.cpp takes no part: add --peers (its native build takes some minutes the first time)"


@dataclass(frozen=True)
class ModelSettings:
    """How much to measure."""

    prefills: tuple[int, ...] = (512, 2048, LONG_PREFILL)  # prompt lengths; lengths beyond the context are skipped
    decode_context: int = 128  # prompt length of a decode sample
    decode_tokens: int = 32  # per sample
    batch_steps: int = 8  # per sample of `BATCH` requests
    seconds: float = 1800  # for the run, without loading: a long prompt takes minutes
    footprint_bytes: int = 1024 * MIB  # read by the bandwidth gauge
    float_format: str = AUTO_FORMAT  # format that float weights are converted to


QUICK = ModelSettings(
    prefills=(512, 2048), decode_tokens=16, batch_steps=2, seconds=40, footprint_bytes=512 * MIB
)  # fmt: skip


class OneUser:
    """Runs one greedy request at a time, each with a new random prompt."""

    def __init__(self, llm: LLM) -> None:
        self._llm, self._ids = llm, count()
        self._rng = np.random.default_rng(0)
        self.native_share: list[float] = []  # share of native code in the time of each decode sample

    def prefill(self, num_tokens: int) -> float:
        """Seconds from the request to its first token."""
        start = time.perf_counter()
        self._start(num_tokens, 1)
        self._finish()
        return time.perf_counter() - start

    def decode(self, context: int, num_tokens: int) -> float:
        """Seconds for `num_tokens` tokens after the first."""
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
) -> BenchResults:
    def load() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=max(settings.prefills) + 64, max_running=BATCH,
            speculate="off", float_format=settings.float_format,
        )  # fmt: skip

    loaded = load_model(model, load, say)
    llm, backend = loaded.llm, loaded.llm.backend
    settings = replace(
        settings, prefills=tuple(num_tokens for num_tokens in settings.prefills if num_tokens < llm.max_context)
    )
    bench, absent = _find_peer(model, llm, variant, peers, say)
    user = OneUser(llm)
    cases = [
        *_own_cases(llm, user, settings),
        *(_peer_cases(bench, settings, linear_products(llm.model)) if bench else []),
    ]
    cases.sort(key=lambda case: case.operations)  # short cases first; compared cases are neighbours
    limits = gauges(backend, settings.footprint_bytes)
    interleaver = Interleaver(limits, TimeBudget(settings.seconds), report=lambda *at: say(progress(*at)))
    measurements = interleaver.run(cases)
    absent |= interleaver.failures
    moe = llm.config.moe
    file_bytes = bytes_of_a_token(open_model(model).checkpoint.tensors, moe.router.top_k if moe else 0)
    described = loaded.described | {
        "decode_bytes": llm.read_bytes(settings.decode_context), "file_bytes": file_bytes,
    }  # fmt: skip
    file_share = file_bytes / llm.read_bytes(0) if file_bytes is not None else None
    questions = model_questions(measurements, user.native_share, absent, backend.variant, file_share)
    figures = [question.figure() for question in questions]
    named = {"llama.cpp": bench.describe()} if bench else {}
    return BenchResults(measurements, figures, described, named, absent, loaded.run.facts(backend))


def _find_peer(
    model: str, llm: LLM, variant: str | None, wanted: bool | None, say: Say
) -> tuple[LlamaBench | None, dict[str, str]]:
    if not wanted:
        return None, {"llama.cpp": NO_PEER}
    if not model.endswith(".gguf"):
        return None, {"llama.cpp": "reads GGUF files only"}
    try:
        return LlamaBench.install(Path(model), llm.backend.threads, build_for(variant), say), {}
    except (OSError, RuntimeError) as failure:
        return None, {"llama.cpp": str(failure)}


def _own_cases(llm: LLM, user: OneUser, settings: ModelSettings) -> Iterator[Case]:
    for tokens in settings.prefills:
        operations = _prefill_operations(linear_products(llm.model), tokens)
        run = partial(user.prefill, tokens)
        yield Case(f"prefill/{tokens}", "prefill", run, operations=operations, labels={"tokens": tokens})
    context, num_tokens = settings.decode_context, settings.decode_tokens
    nbytes = llm.read_bytes(context + num_tokens // 2)
    yield Case("decode/1", "decode", lambda: user.decode(context, num_tokens), num_tokens, nbytes)
    batch = partial(EngineLoad(llm).decode_steps, BATCH, settings.batch_steps)
    nbytes = llm.read_bytes(0)
    yield Case(f"decode/{BATCH}", "batch", batch, settings.batch_steps, nbytes, labels={"requests": BATCH})


def _peer_cases(bench: LlamaBench, settings: ModelSettings, products: int) -> Iterator[Case]:
    for tokens in settings.prefills:
        operations, run = _prefill_operations(products, tokens), partial(bench.prefill, tokens)
        name, labels = f"llama.cpp/prefill/{tokens}", {"tokens": tokens}
        yield Case(name, "prefill", run, operations=operations, engine="llama.cpp", labels=labels)
    num_tokens = settings.decode_tokens
    yield Case("llama.cpp/decode/1", "decode", lambda: bench.decode(num_tokens), num_tokens, engine="llama.cpp")


def _prefill_operations(products: int, num_tokens: int) -> float:
    """Operations that count as useful: one product for each weight and token, whatever number of limbs we compute."""
    return 2.0 * products * num_tokens


def show_model(results: BenchResults, console: Console) -> None:
    console.print(Group(*model_parts(results, _model_speeds(results))))


def _model_speeds(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "best tokens/s", "median", "of limit")
    for m in results.measurements.values():
        if m.case.kind in ("prefill", "decode", "batch") and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", m.case.labels.get("requests", 1)))
            gauge = INT8_PEAK if m.case.operations else BANDWIDTH
            limit = share_of([m], gauge) if m.case.engine == "surefoot" else ""
            table.add_row(title(m), f"{tokens / m.best:,.1f}", f"{tokens / m.median:,.1f}", limit)
    return table
