"""The same bits however a request is computed: in any chunks, in any company, on any threads, by any variant."""

import dataclasses
import functools

import numpy as np
import pytest

from surefoot.formats import MODEL_FORMATS, SERVED
from surefoot.models import Model, find_family, load, read_config
from surefoot.models.config import SharedKv
from surefoot.models.load import Loader
from surefoot.ops import Backend
from surefoot.runner import Session, SessionRunner, Work
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import tiny
from tests.models.conftest import make_backend
from tests.models.in_memory import InMemory

pytestmark = pytest.mark.long

LENGTH = 150
FIRST = 70  # of them: more than any model's window
families = pytest.mark.parametrize("name", list(tiny.MODELS))


@functools.cache
def expected(name: str) -> bytes:
    """Logits of the whole prompt in one chunk, on the best variant."""
    backend = make_backend(None, 2)
    runner = tiny.make_runner(backend, tiny.make_model(backend, name))
    return tiny.all_logits(runner, tiny.tokens(LENGTH), [LENGTH]).tobytes()


def random_lengths(seed: int, largest: int) -> list[int]:
    lengths, rng = list[int](), np.random.default_rng(seed)
    while sum(lengths) < LENGTH:
        lengths.append(int(min(rng.integers(1, largest + 1), LENGTH - sum(lengths))))
    return lengths


@families
def test_chunks_do_not_show(backend: Backend, name: str) -> None:
    """Small chunks make the rings of window layers come round: 128 tokens, of which a chunk and a window are in use."""
    model = tiny.make_model(backend, name)
    for lengths, max_chunk in (([1] * LENGTH, 16), (random_lengths(1, 16), 16), (random_lengths(2, 100), 512)):
        runner = tiny.make_runner(backend, model, max_chunk=max_chunk)
        assert tiny.all_logits(runner, tiny.tokens(LENGTH), lengths).tobytes() == expected(name)


@families
def test_recording_does_not_show(backend: Backend, name: str) -> None:
    runner = tiny.make_runner(backend, tiny.make_model(backend, name), record=False)
    assert tiny.all_logits(runner, tiny.tokens(LENGTH), [100, 1, 49]).tobytes() == expected(name)


@families
@pytest.mark.parametrize("threads", [1, 3])
def test_variants_and_threads_do_not_show(variant: str, threads: int, name: str) -> None:
    """Over the first tokens, which see no others: plain code takes its time."""
    backend = make_backend(variant, threads)
    runner = tiny.make_runner(backend, tiny.make_model(backend, name))
    logits = tiny.all_logits(runner, tiny.tokens(LENGTH)[:FIRST], [FIRST])
    assert logits.tobytes() == expected(name)[: logits.nbytes]


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "deepseek_v2"])
def test_nothing_shows_with_eight_bit_activations(variant: str, name: str) -> None:
    def logits(variant: str | None, threads: int, lengths: tuple[int, ...]) -> bytes:
        backend = make_backend(variant, threads)
        model = load(backend, tiny.checkpoint(name), MODEL_FORMATS["w8a8"])
        return tiny.all_logits(tiny.make_runner(backend, model), tiny.tokens(LENGTH), list(lengths)).tobytes()

    wanted = logits(None, 2, (LENGTH,))
    assert wanted != expected(name)
    assert logits(variant, 1, (LENGTH,)) == logits(variant, 3, (100, 1, 49)) == wanted


@families
def test_company_does_not_show(backend: Backend, name: str) -> None:
    """Three requests that come, work in chunks of different lengths and leave at different times."""
    runner = tiny.make_runner(backend, tiny.make_model(backend, name))
    mine, others = runner.open(LENGTH), [runner.open(120), runner.open(90)]
    rng, start, logits = np.random.default_rng(4), 0, []
    while start < LENGTH:
        works = [work(runner, other, int(rng.integers(1, 30)), rng) for other in others]
        count = int(min(rng.integers(1, 60), LENGTH - start))
        works.insert(1, Work(mine, tiny.tokens(LENGTH)[start : start + count], count))
        present = [one for one in works if one.tokens]
        at = sum(one.num_logits for one in present[: [one.session for one in present].index(mine)])
        logits.append(runner.execute(present)[at : at + count].copy())
        start += count
    assert np.concatenate(logits).tobytes() == expected(name)


def work(runner: SessionRunner, session: Session, count: int, rng: np.random.Generator) -> Work:
    count = min(count, session.max_tokens - session.num_tokens)
    return Work(session, rng.integers(0, tiny.VOCAB, count).tolist(), int(count > 0))


def test_freed_blocks_are_used_again(backend: Backend) -> None:
    runner = tiny.make_runner(backend, tiny.make_model(backend, "mistral"))
    first = tiny.all_logits(runner, tiny.tokens(LENGTH), [LENGTH])
    for _ in range(20):
        assert np.array_equal(tiny.all_logits(runner, tiny.tokens(LENGTH), [LENGTH]), first)


def test_more_than_there_is_room_for_is_refused(backend: Backend) -> None:
    runner = tiny.make_runner(backend, tiny.make_model(backend, "llama"))
    with pytest.raises(ValueError, match="more than"):
        runner.open(1025)
    runner.open(1024)
    with pytest.raises(MemoryError, match="no room"):
        runner.open(1024)


def sharing_model(backend: Backend, shares: bool) -> Model:
    """Llama whose layer 0 adds nothing to the stream, so that layer 1, with its norm, sees what layer 0 saw; layer 1
    has layer 0's keys and values, either as weights of its own or by sharing them."""
    given = tiny.checkpoint("llama")
    tensors = {name: tensor.floats() for name, tensor in given.tensors.items()}
    for name in ("attn_output", "ffn_down"):
        tensors[f"blk.0.{name}.weight"] = np.zeros_like(tensors[f"blk.0.{name}.weight"])
    for name in ("attn_norm", "attn_k", "attn_v"):
        tensors[f"blk.1.{name}.weight"] = tensors[f"blk.0.{name}.weight"]
    if shares:
        del tensors["blk.1.attn_k.weight"], tensors["blk.1.attn_v.weight"]
    checkpoint = HuggingFaceCheckpoint(given.metadata, {})
    checkpoint.tensors = {name: InMemory(values) for name, values in tensors.items()}
    config = read_config(given)
    if shares:
        layers = list(config.layers)
        layers[1] = dataclasses.replace(layers[1], kv=SharedKv(0))
        config = dataclasses.replace(config, layers=tuple(layers))
    return find_family("llama").build(Loader(backend, checkpoint, config, SERVED))


def test_layers_can_share_what_one_of_them_keeps(backend: Backend) -> None:
    logits = [
        tiny.all_logits(tiny.make_runner(backend, sharing_model(backend, shares)), tiny.tokens(LENGTH), [100, 1, 49])
        for shares in (False, True)
    ]
    assert logits[0].tobytes() == logits[1].tobytes()
