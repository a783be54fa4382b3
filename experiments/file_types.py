"""Every type of GGUF weights, beside the bytes of the file and beside llama.cpp: memory, decoding and prompts.

python -m experiments.file_types MODEL.gguf FOLDER [--types Q2_K,IQ4_XS] [--seconds 150] [--variant avx2] > RUN.json

llama.cpp's own program makes a file of each type from the model, unless it is in the folder (a minute each). Each file
is loaded at both widths (docs/design/file-widths.md), which take turns with llama.cpp. `docs/make/results.py record`
keeps RUN.json; what runs is told on stderr.
"""

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter

from surefoot.api import LLM
from surefoot.api.opening import open_model
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.figures import Figure, Measurements, Question, Target, select
from surefoot.bench.harness.loaded_model import RunFacts, bandwidth_case
from surefoot.bench.harness.timing import BANDWIDTH, Case, Interleaver, Measurement, TimeBudget, ratios, shares_of_limit
from surefoot.bench.model.run import OneUser
from surefoot.bench.peers.llama_tools import LlamaBench, build_for, install_tool
from surefoot.ops import Backend
from surefoot.weights import gguf
from surefoot.weights.memory import bytes_of_a_token

TYPES = (
    "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "IQ3_S",
    "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0",
)  # fmt: skip
NEED_IMPORTANCE = ("IQ1", "IQ2", "IQ3")  # llama.cpp makes these from an importance matrix only
# The share of the memory from which files are packed at their own width: never, and always. Usually codes of 5 and 6
# bits keep theirs where the variant makes them in registers.
WIDTHS = {"usual": 1e9, "narrow": 0.0}
PROMPT, CONTEXT, NEW, USERS, STEPS = 512, 128, 32, 8, 4
FOOTPRINT = 1 << 30
LLAMACPP = "llama.cpp"


@dataclass(frozen=True)
class MeasuredType:
    measurements: Measurements
    file_bytes: int  # that a token reads
    memory_bytes: Mapping[str, int]  # that a token reads, by width


def quantized(model: Path, kind: str, folder: Path) -> Path:
    path = folder / f"{model.stem}-as-{kind}.gguf"
    if not path.exists():
        program, partial_path = install_tool("llama-quantize", tell), path.with_suffix(".part")
        importance = ["--imatrix", even_importance(model, folder)] if kind.startswith(NEED_IMPORTANCE) else []
        command = [program, "--allow-requantize", *importance, model, partial_path, kind]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{kind}: {done.stderr.strip().splitlines()[-1:]}")
        partial_path.rename(path)
    return path


def even_importance(model: Path, folder: Path) -> Path:
    """An importance matrix that weighs every column the same: answers suffer from it, speed does not."""
    path = folder / f"{model.stem}-even-importance.gguf"
    writer = GGUFWriter(path, "imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 1)
    for name, tensor in open_model(str(model)).checkpoint.tensors.items():
        if len(tensor.shape) > 1:
            *experts, _, columns = tensor.shape
            writer.add_tensor(f"{name}.in_sum2", np.ones((*experts, columns), np.float32))
            writer.add_tensor(f"{name}.counts", np.ones((*experts, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path, width: str, variant: str | None) -> LLM:
    usual, gguf.MAX_WIDE_SHARE = gguf.MAX_WIDE_SHARE, WIDTHS[width]
    try:
        return LLM(path, variant=variant, max_context=1024, max_running=USERS, kv_bytes=256 << 20, speculate="off")
    finally:
        gguf.MAX_WIDE_SHARE = usual


def own_cases(llm: LLM, width: str) -> Iterator[Case]:
    user, labels = OneUser(llm), {"width": width}
    nbytes = llm.read_bytes(CONTEXT + NEW // 2)
    yield Case(f"{width}/decode", "decode", partial(user.decode, CONTEXT, NEW), NEW, nbytes, labels=labels)
    steps = partial(EngineLoad(llm).decode_steps, USERS, STEPS)
    yield Case(f"{width}/decode/{USERS}", "batch", steps, STEPS, llm.read_bytes(0), labels=labels)
    yield Case(f"{width}/prefill", "prefill", partial(user.prefill, PROMPT), labels=labels)


def measure(path: Path, seconds: float, variant: str | None) -> MeasuredType:
    loaded = {width: load(path, width, variant) for width in WIDTHS}
    first = loaded["usual"]
    peer = LlamaBench.install(path, first.backend.threads, build_for(variant), tell)
    cases = [case for width, llm in loaded.items() for case in own_cases(llm, width)]
    cases += [
        Case("llama.cpp/decode", "decode", partial(peer.decode, NEW), NEW, engine=LLAMACPP),
        Case("llama.cpp/prefill", "prefill", partial(peer.prefill, PROMPT), engine=LLAMACPP),
    ]
    measurements: dict[str, Measurement] = {}
    for is_prefill, share in ((False, 0.4), (True, 0.6)):
        interleaver = Interleaver([bandwidth_case(first.backend, FOOTPRINT)], TimeBudget(share * seconds))
        parts = [case for case in cases if (case.kind == "prefill") == is_prefill]
        measurements |= interleaver.run(sorted(parts, key=lambda case: case.kind, reverse=True))  # compared: neighbours
    file_bytes = bytes_of_a_token(open_model(str(path)).checkpoint.tensors, 0)
    assert file_bytes is not None
    memory = {width: llm.read_bytes(0) for width, llm in loaded.items()}
    for llm in loaded.values():
        llm.close()
    return MeasuredType(measurements, file_bytes, memory)


def figures(kind: str, measured: MeasuredType) -> Iterator[Figure]:
    for width, memory_bytes in measured.memory_bytes.items():
        yield from figures_of_width(kind, width, memory_bytes / measured.file_bytes, measured.measurements)

    def narrow_over_usual(what: str) -> Sequence[float]:
        return ratios(*(select(measured.measurements, what, width=width) for width in WIDTHS))

    for what in ("decode", "batch", "prefill"):
        name = f"{kind.lower()}_{what}_narrow_vs_usual"
        yield Question(name, f"{what}: narrow over usual", None, partial(narrow_over_usual, what)).figure()


def figures_of_width(kind: str, width: str, over_file: float, found: Measurements) -> Iterator[Figure]:
    """over_file: bytes that a token reads, over those of the file."""

    def figure(name: str, meaning: str, answer: Callable[[], Sequence[float]], aim: Target | None = None) -> Figure:
        return Question(f"{kind.lower()}_{width}_{name}", meaning, aim, answer).figure()

    def over_peer(what: str) -> Sequence[float]:
        return ratios(select(found, what, LLAMACPP), select(found, what, width=width))

    decode = select(found, "decode", width=width)
    yield figure("over_file", "bytes of a token: memory over file", lambda: [over_file])
    prompts = select(found, "prefill", width=width)
    yield figure("prompt_tokens_s", "prompt: tokens/s", lambda: [PROMPT / seconds for seconds in prompts[0].seconds])
    yield figure("tokens_s", "decode: tokens/s", lambda: [1 / seconds for seconds in decode[0].seconds])
    yield figure(
        "of_file_limit", "decode: of what the file's bytes allow",
        lambda: [share / over_file for share in shares_of_limit(decode, BANDWIDTH)],
        Target(0.85) if width == "narrow" else None,
    )  # fmt: skip
    for what, bound in (("decode", 1.0 if kind.startswith(("IQ1", "IQ2", "IQ3")) else 1.2), ("prefill", 1.5)):
        yield figure(f"{what}_vs_llamacpp", f"{what}: over llama.cpp", partial(over_peer, what), Target(bound))


def tell(line: str) -> None:
    print(line, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--types", default=",".join(TYPES), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=150, help="for each type")
    parser.add_argument("--variant")
    parser.add_argument("--only-files", action="store_true", help="make the files, and measure nothing")
    arguments = parser.parse_args()
    run, found = RunFacts(), dict[str, Figure]()
    for kind in arguments.types.split(","):
        path = quantized(arguments.model, kind, arguments.folder)
        if not arguments.only_files:
            measured = measure(path, arguments.seconds, arguments.variant)
            gc.collect()
            found |= {figure.name: figure for figure in figures(kind, measured)}
            told = {
                figure.name: figure.value for figure in found.values() if figure.name.startswith(f"{kind.lower()}_")
            }
            tell(" ".join(f"{name} {value:.3f}" for name, value in told.items() if value is not None))
    print(json.dumps(as_run(found, run, arguments.variant)))


def as_run(found: Mapping[str, Figure], run: RunFacts, variant: str | None) -> dict[str, Any]:
    with closing(Backend(variant)) as backend:
        facts = run.facts(backend)
    return {
        "figures": {figure.name: figure.value for figure in found.values()},
        "samples": {figure.name: figure.samples for figure in found.values() if figure.samples},
        "targets": {
            figure.name: {"bound": figure.target.bound, "at_least": figure.target.at_least}
            for figure in found.values()
            if figure.target
        },
        "machine": facts,
    }


if __name__ == "__main__":
    main()
