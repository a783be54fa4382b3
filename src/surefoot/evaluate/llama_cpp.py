"""llama.cpp's logits for the same file and tokens, from a separate process."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import numpy as np

from surefoot.evaluate.engines import CHUNK
from surefoot.ops.arrays import F32

WORKER = Path(__file__).with_name("llama_cpp_worker.py")


class LlamaCppError(OSError):
    """llama.cpp is not installed, or cannot run the file."""


def find_library() -> str:
    """The path of xllamacpp's shared library."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise LlamaCppError("llama.cpp is not installed: pip install xllamacpp")
    return str(next(Path(spec.origin).parent.glob("*.so")))


class LlamaCpp(AbstractContextManager["LlamaCpp"]):
    """An engine with llama.cpp's own defaults (a KV cache in float16)."""

    name = "llama.cpp"

    def __init__(self, path: Path, context: int, threads: int) -> None:
        command = [sys.executable, "-P", str(WORKER), find_library(), str(path), str(context), str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._vocab_size = int.from_bytes(self._read(8), "little")

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(window)).encode() + b"\n")
        self._process.stdin.flush()
        for start in range(0, len(window), CHUNK):
            rows = min(CHUNK, len(window) - start)
            yield np.frombuffer(self._read(rows * self._vocab_size * 4), np.float32).reshape(rows, -1)

    def _read(self, nbytes: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(nbytes)
        if len(data) < nbytes:
            raise LlamaCppError(f"llama.cpp exited with code {self._process.wait()}: it may not support this file")
        return data

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()
