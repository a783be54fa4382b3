"""Too little memory is reported before anything is loaded, with a message that says what to do."""

import math
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.api import LLM, loading
from surefoot.engine import MemoryRequest, fit_context
from surefoot.formats import FLOAT32, SERVED, ModelFormat, to_format
from surefoot.machine.limits import Memory
from surefoot.models import ModelConfig, read_config
from surefoot.weights import GgufFile, open_checkpoint
from surefoot.weights.memory import _smaller, bytes_of_a_token, check_memory, sizes_by_type, weight_bytes
from tests.stories import stories_gguf
from tests.weights.gguf_files import write


def never(*_: object, **__: object) -> None:
    raise AssertionError("weights were read")


def test_a_context_that_does_not_fit_is_refused_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load", never)
    with pytest.raises(MemoryError, match=r"too few for a context of 512 "):
        LLM(stories_gguf(), max_context=512, max_running=1, kv_bytes=1 << 16)


@pytest.mark.parametrize("asked", [None, 512, 100, 2])
@pytest.mark.parametrize("hybrid", [False, True])
def test_advice_on_memory_works(asked: int | None, hybrid: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(open_checkpoint(stories_gguf()))
    monkeypatch.setattr(ModelConfig, "state_bytes", 30_000 if hybrid else 0)
    advised = set[str]()
    for nbytes in (0, 100, 1 << 10, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 20):
        request = MemoryRequest({0: 1000}, nbytes, asked, max_running=8, max_chunk=64)
        try:
            fit_context(config, request)
        except MemoryError as refusal:
            found = re.search(r"lower (max_\w+) \S+ to (\d+)", str(refusal))
            if found is None:
                for alone in ({"max_context": 1}, {"max_running": 1}):
                    with pytest.raises(MemoryError):
                        fit_context(config, replace(request, **alone))
            else:
                advised.add(found[1])
                assert int(found[2]) >= 1
                fit_context(config, replace(request, **{found[1]: int(found[2])}))
    assert advised <= {"max_context", "max_running"}
    assert advised or asked == 2


def test_a_context_below_the_default_minimum_can_be_requested() -> None:
    assert LLM(stories_gguf(), max_context=32, max_running=1, max_chunk=32, kv_bytes=4 << 20).max_context == 32


def test_weights_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a megabyte, which cannot be had."""
    checkpoint = open_checkpoint(stories_gguf())
    monkeypatch.setattr("surefoot.machine.memory", lambda: Memory(1 << 20, None))
    with pytest.raises(MemoryError, match=r"needs at least \d+ MiB for its weights.*take a model with fewer weights"):
        check_memory(stories_gguf(), checkpoint, SERVED, 1)


@pytest.mark.parametrize(
    ("fmt", "share", "advice"),
    [
        (SERVED, 0.7, r"--format w4 needs at least"),
        (SERVED, 0.3, r"take a model with fewer weights"),
        (to_format("w4"), 0.9, r"take a model with fewer weights"),
    ],
)
def test_a_smaller_form_is_advised_only_if_it_fits(fmt: ModelFormat, share: float, advice: str) -> None:
    checkpoint = open_checkpoint(stories_gguf())
    weights = weight_bytes(checkpoint, fmt)
    assert re.match(advice, _smaller(checkpoint, weights, int(share * weights)))


def test_the_lower_bound_on_weights_holds() -> None:
    checkpoint = open_checkpoint(stories_gguf())
    packed = LLM(stories_gguf(), max_running=1, kv_bytes=4 << 20).read_bytes(0)
    assert 0 < weight_bytes(checkpoint, SERVED) <= packed + (1 << 16)  # those of the norms are in float
    assert weight_bytes(checkpoint, FLOAT32) == 4 * sum(math.prod(info.shape) for info in checkpoint.tensors.values())


def test_a_token_needs_the_matrices_and_its_experts(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "model.gguf"))
    sizes = {sizes.type: sizes for sizes in sizes_by_type(file, SERVED)}
    assert sizes["Q4_1"].file_bytes == 3 * 4 * 2 * 20, "three experts of four rows of two blocks"
    everything = sum(kind.file_bytes for kind in sizes.values())
    assert bytes_of_a_token(file.tensors, num_experts=3) == everything
    assert bytes_of_a_token(file.tensors, num_experts=1) == everything - sizes["Q4_1"].file_bytes * 2 // 3


@pytest.mark.parametrize("mib", [64, 160, 380])
def test_a_small_address_limit_ends_with_an_error_message(mib: int) -> None:
    """Of what libraries in Rust need, none may be missing: they would end the process (SIGABRT)."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))

    done = subprocess.run(
        [sys.executable, "-m", "surefoot", "generate", stories_gguf(), "Once", "-n", "2"],
        capture_output=True, text=True, check=False, timeout=300, preexec_fn=limit,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert lines[0].startswith("surefoot: ")
    assert "ulimit -v" in lines[0]
