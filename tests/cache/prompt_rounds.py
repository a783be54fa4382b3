"""Answers prompts in processes that follow each other on one cache folder: `python -m tests.cache.prompt_rounds`.

Each process loads the model anew, with another instruction set or another number of threads, and answers some of the
prompts. What it prints tells tokens, bits of logprobs and tokens that came from the cache. Torch is not imported.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot.cache import DiskTier
from surefoot.core import Request, SamplingParams
from surefoot.disk_cache import BlockHasher, BlockStore
from surefoot.engine import Engine, MemoryRequest, make_engine, make_runner, plan_memory
from surefoot.models import load
from surefoot.ops import Backend, KvForm
from surefoot.runner import slot_bytes
from surefoot.weights import GgufFile, HuggingFaceCheckpoint

ROOT = Path(__file__).parents[2]
BLOCK, CONTEXT, BUDGET = 16, 448, 1 << 30
USERS = ("ann", "bob", "cid")
NUM_STEMS, LONGEST = 6, 300


@dataclass(frozen=True)
class Round:
    """What one process does."""

    model: Path  # a GGUF file or a Hugging Face folder
    folder: Path | None  # of the cache; None: none
    variant: str | None
    threads: int
    first: int  # the number of its first prompt
    count: int


@dataclass(frozen=True)
class RoundAnswer:
    """The answer to one prompt."""

    tokens: tuple[int, ...]
    digest: str  # of tokens and bits of logprobs
    num_cached: int


def request(number: int) -> Request:
    """The prompt of that number: how one of a few texts begins, then its own end. All users ask about all texts."""
    rng = random.Random(number)
    texts = random.Random(-1 - rng.randrange(NUM_STEMS))
    stem = [texts.randrange(3, 256) for _ in range(LONGEST)][: rng.randrange(1, LONGEST)]
    prompt = (*stem, *(rng.randrange(3, 256) for _ in range(rng.randrange(1, 20))))
    params = SamplingParams(
        temperature=rng.choice((0.0, 0.8)), seed=number, max_tokens=rng.randrange(1, 24), logprobs=1, ignore_eos=True
    )
    user = rng.choice(USERS)
    return Request(str(number), prompt, params, namespace=user, user=user)


def answer_round(given: Round) -> dict[int, RoundAnswer]:
    engine = open_engine(given)
    answers: dict[int, tuple[tuple[int, ...], list[str], int]] = {}
    for number in range(given.first, given.first + given.count):
        engine.add(request(number))
    while engine.has_work:
        for event in engine.step():
            tokens, bits, num_cached = answers.get(int(event.key.request), ((), [], 0))
            bits += [repr(logprobs) for logprobs in event.logprobs]
            cached = num_cached if event.usage is None else event.usage.num_cached
            answers[int(event.key.request)] = tokens + event.tokens, bits, cached
    engine.close()
    return {
        number: RoundAnswer(tokens, hashlib.sha256(repr((tokens, bits)).encode()).hexdigest(), num_cached)
        for number, (tokens, bits, num_cached) in answers.items()
    }


def open_engine(given: Round) -> Engine:
    backend = Backend(given.variant, given.threads)
    is_folder = given.model.is_dir()
    model = load(backend, HuggingFaceCheckpoint.open(given.model) if is_folder else GgufFile(given.model))
    model = replace(model, config=replace(model.config, context=CONTEXT))
    memory = MemoryRequest(slot_bytes(backend, model.config, block_size=BLOCK), 24 << 20, None, 8, 128, BLOCK)
    capacity = plan_memory(model, memory, backend.variant)
    runner = make_runner(backend, model, capacity, KvForm.KEYS_TWO_LIMBS)
    hasher = BlockHasher(b"rounds")
    tier = None if given.folder is None else DiskTier(BlockStore(given.folder, BUDGET), lambda: hasher, runner.kv)
    return make_engine(capacity, runner, tier=tier)


def in_process(given: Round) -> dict[int, RoundAnswer]:
    """What `answer_round` gives in a process of its own."""
    options = [str(given.model), "--first", str(given.first), "--count", str(given.count)]
    options += ["--threads", str(given.threads)]
    options += [] if given.folder is None else ["--folder", str(given.folder)]
    options += [] if given.variant is None else ["--variant", given.variant]
    command = [sys.executable, "-m", "tests.cache.prompt_rounds", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return {
        int(number): RoundAnswer(tuple(tokens), *rest) for number, (tokens, *rest) in json.loads(done.stdout).items()
    }


class SharedPrefixes:
    """How many texts of a user begin with the same blocks."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def add(self, number: int, answer: RoundAnswer) -> None:
        asked = request(number)
        self._counts.update(_prefixes(asked.namespace, asked.prompt + answer.tokens))

    def longest(self, number: int) -> int:
        """The most tokens of a prompt, in whole blocks, that another text of the same user begins with."""
        asked = request(number)
        shared = (len(key[1]) for key in _prefixes(asked.namespace, asked.prompt) if self._counts[key] > 1)
        return max(shared, default=0)


def _prefixes(user: str, tokens: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    return ((user, tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--variant")
    for name in ("threads", "first", "count"):
        parser.add_argument(f"--{name}", type=int)
    given = parser.parse_args()
    made = answer_round(Round(given.model, given.folder, given.variant, given.threads, given.first, given.count))
    json.dump({number: (one.tokens, one.digest, one.num_cached) for number, one in made.items()}, sys.stdout)


if __name__ == "__main__":
    main()
