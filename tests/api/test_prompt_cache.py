"""Prompts that outlive the process: what their blocks depend on, and what they must not depend on."""

import hashlib
import math
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM, SamplingParams
from surefoot.api.prompt_cache import ARITHMETIC, PromptCache, default_folder, open_store
from surefoot.disk_cache import CacheInUse
from surefoot.models import Model, load
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.runner import SessionRunner
from surefoot.weights import GgufFile, HuggingFaceCheckpoint, ModelDigests, hash_model
from tests.api.kill_loop import run_answer_kills
from tests.models.in_memory import InMemory
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

PROMPT = [1 + number % 400 for number in range(100)]
GREEDY = SamplingParams(max_tokens=8, temperature=0, logprobs=2)


def ask(folder: Path, model: Path | None = None, **options: object) -> tuple[object, int]:
    llm = LLM(model or stories_gguf(), threads=1, prompt_cache=folder, speculate="off", **options)
    (output,) = llm.generate([PROMPT], GREEDY)
    llm.close()
    return (output.outputs[0].token_ids, output.outputs[0].logprobs), output.usage.num_cached


def test_the_next_process_goes_on_where_this_one_was(tmp_path: Path) -> None:
    cold, num_cached = ask(tmp_path)
    assert num_cached == 0
    assert ask(tmp_path) == (cold, 96)
    assert ask(tmp_path, max_context=256, max_chunk=32) == (cold, 96)


def test_a_copy_of_the_model_is_the_same_model(tmp_path: Path) -> None:
    cold, _ = ask(tmp_path / "cache")
    copy = tmp_path / "other name.gguf"
    shutil.copy(stories_gguf(), copy)
    assert ask(tmp_path / "cache", copy) == (cold, 96)
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    assert ask(tmp_path / "cache", copy)[1] == 0


def test_formats_have_blocks_of_their_own(tmp_path: Path) -> None:
    assert ask(tmp_path, float_format="w8")[1] == 0
    assert ask(tmp_path, float_format="w4")[1] == 0
    assert ask(tmp_path, block_size=32)[1] == 0
    assert ask(tmp_path, float_format="w4")[1] == 96


def test_files_are_hashed_once(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(stories_gguf(), model)
    known: dict[str, str] = {}
    digest = hash_model(model, known.get, known.__setitem__)
    assert len(known) == 1
    (name,) = known
    known[name] = "remembered"
    assert hash_model(model, known.get, known.__setitem__) != digest
    time.sleep(0.01)
    os.utime(model, (1, 1))
    assert hash_model(model, known.get, known.__setitem__) == digest
    assert len(known) == 2


def test_a_second_model_on_the_folder_is_refused(tmp_path: Path) -> None:
    llm = LLM(stories_gguf(), threads=1, prompt_cache=tmp_path)
    with pytest.raises(CacheInUse, match=str(os.getpid())):
        LLM(stories_gguf(), threads=1, prompt_cache=tmp_path)
    llm.close()
    LLM(stories_gguf(), threads=1, prompt_cache=tmp_path).close()


@pytest.mark.parametrize("num_kills", [4, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_killed_process_leaves_nothing_wrong(tmp_path: Path, num_kills: int) -> None:
    report = run_answer_kills(tmp_path, num_kills, seed=1)
    assert report.num_from_disk > 0
    assert report.num_damaged == 0


def test_the_default_budget_is_a_tenth_of_the_disk(tmp_path: Path) -> None:
    store, _ = open_store(PromptCache(tmp_path / "cache"))
    assert store.max_bytes == pytest.approx(shutil.disk_usage(tmp_path).free / 10, rel=0.05)
    store.close()


def test_without_a_home_nothing_is_kept() -> None:
    nowhere = Path("~no-such-user/cache")
    llm = LLM(stories_gguf(), threads=1, prompt_cache=PromptCache(nowhere, is_required=False))
    assert llm.disk_tier is None
    assert "home" in llm.no_disk_reason


def test_the_first_requests_need_not_wait_for_the_models_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_hash = threading.Event()

    def slow_digest(*words: Any) -> ModelDigests:
        may_hash.wait(PATIENCE_S)
        return hash_model(*words)

    monkeypatch.setattr("surefoot.api.prompt_cache.hash_model", slow_digest)
    llm = LLM(stories_gguf(), threads=1, prompt_cache=PromptCache(tmp_path, waits=False))
    (early,) = llm.generate([PROMPT], GREEDY)
    may_hash.set()
    assert llm.disk_tier is not None
    while not llm.disk_tier.has_backlog:
        time.sleep(0.01)
    llm.close()
    again, num_cached = ask(tmp_path)
    assert again == (early.outputs[0].token_ids, early.outputs[0].logprobs)
    assert num_cached == 96, "what was computed before is kept"


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder("small") == tmp_path / "surefoot" / "prompts" / "small"


def test_a_change_of_arithmetic_raises_its_number() -> None:
    """If this fails, or a test below, keys and values have other bits than before: raise ARITHMETIC, and put the new
    numbers here."""
    llm = LLM(stories_gguf(), threads=1, prefix_caching=False, speculate="off")
    llm.generate([PROMPT[:33]], SamplingParams(max_tokens=1, temperature=0))
    blocks = llm.runner.kv.read_blocks({0: [0, 1]})
    assert blocks.any()
    assert (ARITHMETIC, hashlib.sha256(blocks.tobytes()).hexdigest()[:16]) == (2, "20eb932949a18ccd")


def stable(name: str, *shape: int) -> F32:
    """Values between -0.25 and 0.25 that no library's version changes."""
    count = math.prod(shape)
    integers = np.frombuffer(hashlib.shake_256(name.encode()).digest(2 * count), "<i2")
    return (integers.astype(np.float32) / 2**17).reshape(shape)


def kept_digest(model: Model, backend: Backend) -> str:
    """Of keys and values of 33 tokens, and of the state after them."""
    runner = SessionRunner.make(backend, model, 64, max_sessions=1, block_size=16)
    session = runner.open(48)
    runner.prefill(session, [1 + 7 * number % 31 for number in range(33)], [20, 13])
    store = runner.runner.kv
    kept = store.read_blocks({0: session.tables[0][:2].tolist()}).tobytes()
    assert any(kept)
    if store.state_bytes:
        state = store.read_state(session.slots[0], 0, store.state_bytes).tobytes()
        assert any(state)
        kept += state
    return hashlib.sha256(kept).hexdigest()[:16]


def test_a_change_of_the_arithmetic_of_k_quants(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "k.gguf", "llama")
    for key, value in {
        "context_length": 64,
        "embedding_length": 256,
        "block_count": 1,
        "feed_forward_length": 256,
    }.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    rows = {"token_embd": 32, "blk.0.attn_q": 256, "blk.0.attn_k": 128, "blk.0.attn_v": 128, "blk.0.attn_output": 256}
    rows |= {f"blk.0.ffn_{part}": 256 for part in ("gate", "up", "down")}
    for number, (name, count) in enumerate(rows.items()):
        kind, size, scales = [("Q4_K", 144, (0, 2)), ("Q6_K", 210, (208,)), ("Q5_K", 176, (0, 2))][number % 3]
        blocks = (
            np.frombuffer(hashlib.shake_256(name.encode()).digest(size * count), np.uint8).reshape(count, size).copy()
        )
        for at in scales:
            blocks[:, at : at + 2] = np.frombuffer(np.float16(0.0005).tobytes(), np.uint8)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", 1 + stable(name, 256))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    backend = Backend(threads=1)
    digest = kept_digest(load(backend, GgufFile(tmp_path / "k.gguf")), backend)
    assert (ARITHMETIC, digest) == (2, "4bd86909d7ba7434")


@pytest.mark.parametrize(
    ("name", "digest"),
    [("qwen3_5", "b35bf769e087e025"), ("lfm2", "0db4ad29d5b568c2"), ("nemotron_h", "bfe2b0bf7cbe8ce6")],
)
def test_a_change_of_the_arithmetic_of_states(name: str, digest: str) -> None:
    """The gated delta rule, a short convolution, Mamba-2's scan. Torch tells the shapes alone."""
    tiny = pytest.importorskip("tests.models.tiny")
    reference, backend = tiny.reference(name), Backend(threads=1)
    weights = {key: InMemory(stable(key, *value.shape)) for key, value in reference.state_dict().items()}
    model = load(backend, HuggingFaceCheckpoint(reference.config.to_dict(), weights))
    assert (ARITHMETIC, kept_digest(model, backend)) == (2, digest)
