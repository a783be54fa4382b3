"""PyTorch's bf16 `F.linear`, inside the peer's process (see worker.py)."""

import time
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


class TorchLinear:
    """An engine for worker.py."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self._weights: dict[str, list[Any]] = {}
        self._next: dict[str, int] = {}
        self._rows: dict[tuple[int, int], Any] = {}

    def describe(self) -> dict[str, Any]:
        return {
            "engine": f"PyTorch {torch.__version__}",
            "capability": torch.backends.cpu.get_cpu_capability(),
            "onednn_bf16": bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
        }

    def prepare(self, key: str, n: int, k: int, format: str, matrices: int) -> dict[str, Any]:
        first = torch.randn(n, k).to(getattr(torch, format))
        self._weights[key] = [first, *(first.clone() for _ in range(matrices - 1))]
        self._next[key] = 0
        return {"bytes": first.numel() * first.element_size()}

    def run(self, key: str, rows: int, calls: int) -> float:
        weights, start = self._weights[key], self._next[key]
        self._next[key] = (start + calls) % len(weights)
        x = self._input(rows, weights[0])
        with torch.inference_mode():
            begin = time.perf_counter()
            for i in range(start, start + calls):
                torch.nn.functional.linear(x, weights[i % len(weights)])
            return time.perf_counter() - begin

    def _input(self, rows: int, weight: Any) -> Any:
        size = (rows, weight.shape[1])
        if size not in self._rows:
            self._rows[size] = torch.randn(size).to(weight.dtype)
        return self._rows[size]


def open_engine(threads: int, options: dict[str, Any]) -> TorchLinear:
    return TorchLinear(threads)
