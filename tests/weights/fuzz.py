"""Loads mutated models in a process with bounded memory. Each must load, or raise an error that commands report.

python -m tests.weights.fuzz --minutes 10            # a long run
python -m tests.weights.fuzz --seed 1234             # repeats one mutation
"""

import argparse
import importlib
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.api import LLM, SamplingParams
from surefoot.cli.errors import EXPECTED
from tests.stories import stories_gguf
from tests.weights.mutations import mutate

OTHER_FILES = {
    "tokenizer_config.json": '{"bos_token": "a", "eos_token": {"content": "b"}, "chat_template": "{{ messages }}"}',
    "generation_config.json": '{"eos_token_id": [3, 4], "temperature": 0.7}',
    "chat_template.jinja": "{{ messages[0].content }}",
}
SHORT = ("llama3", "gemma3", "gpt_oss", "deepseek_v2_narrow", "phi3_long")  # the families that differ most
MEMORY_BYTES = 4 << 30  # limit of the process's address space
GROWTH_BYTES = 400 << 20  # limit of a mutation's memory: the models themselves take a few megabytes
SECONDS = 60  # timeout of a mutation on a busy machine: a valid model takes a tenth of a second


def make_bases(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Paths of stories260K and of a tiny folder for each model of tests/models/tiny.py. names: only these."""
    tiny: Any = importlib.import_module("tests.models.tiny")  # imports torch, which the child must not
    bases = [stories_gguf()]
    for name in names or tiny.MODELS:
        base = folder / name
        base.mkdir(exist_ok=True)
        if not (base / "tokenizer.json").exists():
            tiny.save(name, base)
            for file, text in OTHER_FILES.items():
                (base / file).write_text(text)
        bases.append(base)
    return bases


@dataclass(frozen=True)
class Fault:
    """A mutation that neither loads nor raises an expected error."""

    seed: int
    what: str


def run(bases: list[Path], first: int, seconds: float) -> tuple[int, list[Fault]]:
    """Tries seeds from `first` on for `seconds`. Returns their number, and the faults."""
    end, seed, faults = time.monotonic() + seconds, first, list[Fault]()
    while time.monotonic() < end:
        seed, new = _run_child(bases, seed, end)
        faults += new
    return seed - first, faults


def _run_child(bases: list[Path], first: int, end: float) -> tuple[int, list[Fault]]:
    """Runs a child until `end` or until it ends. Returns the next seed, and the faults."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.weights.fuzz", "--child", str(first), *map(str, bases)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert child.stdout is not None
    seed, faults, rest = first, list[Fault](), b""
    try:
        while True:
            if not select.select([child.stdout], [], [], SECONDS)[0]:
                return seed + 1, [*faults, Fault(seed, f"took more than {SECONDS} s")]
            if not (piece := os.read(child.stdout.fileno(), 1 << 16)):
                child.wait()
                return seed + 1, [*faults, Fault(seed, f"ended the process with code {child.returncode}")]
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                word, number, *what = line.decode(errors="replace").split(" ", 2)
                seed = int(number)
                if word == "fault":
                    faults.append(Fault(seed, " ".join(what)))
            if time.monotonic() > end:
                return seed, faults
    finally:
        child.kill()
        child.communicate()


# ---- the child ----


def child(first: int, bases: list[Path]) -> None:
    """Tries seeds from `first` on. Prints each seed before it is tried, and each fault."""
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try_load(bases[0], bases[0])  # imports modules and fills caches
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for seed in range(first, sys.maxsize):
        print("at", seed, file=say)
        if fault := try_seed(bases, seed):
            print("fault", seed, fault.replace("\n", " | "), file=say)


def try_seed(bases: list[Path], seed: int) -> str:
    """The fault of this seed; empty if there is none."""
    # Half of all mutations are of the GGUF file.
    source = bases[0] if seed % 2 else bases[1 + seed // 2 % (len(bases) - 1)] if len(bases) > 1 else bases[0]
    before = _peak_bytes()
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        fault = try_load(mutate(source, Path(folder), seed), source)
    growth = _peak_bytes() - before
    return fault or (f"{source.name}: took {growth >> 20} MiB" if growth > GROWTH_BYTES else "")


def try_load(path: Path, source: Path) -> str:
    try:
        llm = LLM(path, max_context=64, max_running=1, max_chunk=64, kv_bytes=8 << 20, threads=1, speculate="off")
        llm.generate([1, 2, 3], SamplingParams(max_tokens=2, seed=0))
    except EXPECTED as error:
        message = str(error)
        if not message or (isinstance(error, MemoryError) and "MiB" not in message):
            return f"{source.name}: {type(error).__name__} without a message ({message!r})"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{source.name}: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno} {last.name})"
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return f"{source.name}: a panic in Rust: {error}"
    return ""


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=int(time.time()))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--child", nargs="+")
    options = parser.parse_args()
    if options.child:
        child(int(options.child[0]), [Path(base) for base in options.child[1:]])
        return
    with tempfile.TemporaryDirectory(prefix="surefoot-fuzz-") as folder:
        bases = make_bases(Path(folder))
        if options.seed is not None:
            print(try_seed(bases, options.seed) or "loads, or is refused with a message")
            return
        count, faults = run(bases, options.first, options.minutes * 60)
    for fault in faults:
        print(f"seed {fault.seed}: {fault.what}")
    print(f"{count} mutations from seed {options.first}, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
