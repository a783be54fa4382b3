"""A real file: SmolLM2-135M in Q4_1."""

import functools

import numpy as np
import pytest

from surefoot.models import load
from surefoot.runner import SessionRunner, Work
from surefoot.weights import GgufFile
from tests.models.conftest import make_backend
from tests.smollm2 import SHARED, find_file

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[reference]'")

TEXT = SHARED / "data" / "wikitext2-test.raw"
NUM_TOKENS, CONTEXT = 4096, 1024


@functools.cache
def make_runner(variant: str | None, threads: int) -> SessionRunner:
    backend = make_backend(variant, threads)
    return SessionRunner.make(backend, load(backend, GgufFile(find_file())), num_tokens=2048, max_chunk=256)


@functools.cache
def tokenizer() -> "tokenizers.Tokenizer":
    """The file's own, as far as plain English needs it."""
    metadata = GgufFile(find_file()).metadata
    vocabulary = {token: number for number, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def text_tokens(count: int) -> list[int]:
    if not TEXT.exists():
        pytest.skip(f"{TEXT} is not there")
    ids: list[int] = tokenizer().encode(TEXT.read_text()[: 8 * count]).ids[:count]
    assert len(ids) == count
    return ids


@pytest.mark.parametrize(
    ("prompt", "word"),
    [("The capital of France is", "Paris"), ("The opposite of hot is", "cold"), ("One, two, three, four,", "five")],
)
def test_continues_in_english(prompt: str, word: str) -> None:
    new = make_runner(None, 2).generate(tokenizer().encode(prompt).ids, 12)
    assert word in tokenizer().decode(new)


def test_perplexity() -> None:
    """A plain float forward of the same file gives about 23."""
    ids, losses = text_tokens(NUM_TOKENS), []
    runner = make_runner(None, 2)
    for start in range(0, NUM_TOKENS, CONTEXT):
        session = runner.open(CONTEXT)
        for first in range(start, start + CONTEXT, 256):
            logits = runner.execute([Work(session, ids[first : first + 256], 256)]).astype(np.float64)
            targets = ids[first + 1 : min(first + 257, start + CONTEXT)]
            shifted = logits[: len(targets)] - logits[: len(targets)].max(axis=1, keepdims=True)
            losses.extend(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets])
        runner.close(session)
    assert np.exp(np.mean(losses)) == pytest.approx(23.0, abs=0.5)


@functools.cache
def expected(count: int) -> bytes:
    return logits_in_chunks(make_runner(None, 2), count, [count])


def logits_in_chunks(runner: SessionRunner, count: int, lengths: list[int]) -> bytes:
    ids, session, start, found = text_tokens(count), runner.open(count), 0, []
    for length in lengths:
        found.append(runner.execute([Work(session, ids[start : start + length], length)]).copy())
        start += length
    runner.close(session)
    return np.concatenate(found).tobytes()


@pytest.mark.parametrize("lengths", [[1] * 40, [7, 1, 20, 12]], ids=["one by one", "chunks"])
def test_chunks_do_not_show(lengths: list[int]) -> None:
    assert logits_in_chunks(make_runner(None, 2), 40, lengths) == expected(40)


@pytest.mark.parametrize("threads", [1, 2])
def test_variants_and_threads_do_not_show(variant: str, threads: int) -> None:
    assert logits_in_chunks(make_runner(variant, threads), 40, [40]) == expected(40)
