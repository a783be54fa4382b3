"""SmolLM2's GGUF file: its contents, and the memory that loading takes."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from surefoot.ops.weights import dequantise
from surefoot.weights import GgufFile

# Prints the packed bytes, and the peak growth of the process's memory after opening the file and the library.
LOAD = """
import resource, sys
from surefoot.ops import Backend
from surefoot.weights import GgufFile
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
file, backend = GgufFile(sys.argv[1]), Backend(threads=2)
before = peak()
packed = [file.fused(backend, [name])[0] for name, info in file.tensors.items() if len(info.shape) == 2]
print(sum(matrix.nbytes for matrix in packed), peak() - before)
"""


@pytest.fixture(scope="module")
def path(model_file: Callable[[str], Path]) -> Path:
    return model_file("smollm2")


def test_what_it_holds(path: Path) -> None:
    file = GgufFile(path)
    assert file.metadata["general.architecture"] == "llama"
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
    assert file.metadata["tokenizer.ggml.tokens"][1] == "<|im_start|>"
    assert Counter(info.type.name for info in file.tensors.values()) == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert file.tensors["token_embd.weight"].shape == (49152, 576)


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.29.ffn_down.weight"])
def test_weights_are_the_files(path: Path, name: str) -> None:
    file = GgufFile(path)
    info = file.tensors[name]
    raw = np.fromfile(path, np.uint8, info.nbytes, offset=info.offset).reshape(info.shape[0], -1)
    want = quants.dequantize(raw, gguf.GGMLQuantizationType[info.type.name])
    assert np.array_equal(file.floats(name), want)
    error = np.abs(dequantise(file.integers(name)) - want) / np.abs(want).max(axis=1, keepdims=True)
    # Half a unit per step, times up to 8 steps, and half a unit for the offset; 1.37 on average over uniform codes.
    assert error.max() <= 4.51 / 16256
    assert np.sqrt((error**2).mean()) <= 1.37 / 16256


def test_loading_takes_little_more_than_the_packed_bytes(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, path], capture_output=True, text=True, check=True)
    packed, grown = map(int, done.stdout.split())
    assert packed > 90e6
    assert grown <= 1.15 * packed
