"""Quantisation: what 4 bits cost, layer by layer, and whether the losses add up. See sensitivity.md.

python docs/lessons/sensitivity.py MODEL [--quick] [--svg plot.svg]
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from lesson import arguments, draw, show

from surefoot.formats import W4, round_to
from surefoot.models import Model, load
from surefoot.ops import Backend
from surefoot.ops.weights import PackedWeights, WeightFormat, pack
from surefoot.runner import SessionRunner, Work
from surefoot.text import tokenizer_from_gguf
from surefoot.weights import GgufFile

NUM_SHOWN = 5  # layers
TEXT = ("The little girl lived near the big dark forest. One day she saw a red bird with a broken wing. She took it "
        "home, and her mother said that they would help it. ") * 4  # fmt: skip


class Narrowed:
    """A checkpoint with the matrices of some layers rounded again, to 4 bits in groups of 32."""

    def __init__(self, file: GgufFile, layers: Collection[int]) -> None:
        self._file, self.metadata, self.tensors = file, file.metadata, file.tensors
        self._prefixes = tuple(f"blk.{layer}." for layer in layers)
        self.floats, self.integers, self.fused_experts = file.floats, file.integers, file.fused_experts

    def fused(self, backend: Backend, names: Sequence[str], fmt: WeightFormat) -> list[PackedWeights]:
        if not names[0].startswith(self._prefixes or ("none",)):
            return self._file.fused(backend, names, fmt)
        return [pack(backend, round_to(W4, np.concatenate([self._file.floats(name) for name in names])))]


def logits(backend: Backend, model: Model, tokens: Sequence[int]) -> Any:
    runner = SessionRunner.make(backend, model, num_tokens=len(tokens) + 64)
    session = runner.open(len(tokens))
    return runner.execute([Work(session, tokens, len(tokens))]).astype(np.float64)


def divergence(right: Any, other: Any) -> float:
    """Mean KL divergence of next tokens, in nats."""
    logs = [values - np.logaddexp.reduce(values, axis=1, keepdims=True) for values in (right, other)]
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1).mean())


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    file, backend = GgufFile(asked.model), Backend(threads=asked.threads)
    tokens = tokenizer_from_gguf(file.metadata).encode(TEXT)[: 24 if asked.quick else 128]
    right_model = load(backend, file)
    right, count = logits(backend, right_model, tokens), len(right_model.layers)
    each = [divergence(right, logits(backend, load(backend, Narrowed(file, [layer])), tokens))
            for layer in range(count)]  # fmt: skip
    half = sorted(range(count), key=each.__getitem__)[: count // 2]
    together = {"all layers": range(count), "the less sensitive half": half,
                "the more sensitive half": [layer for layer in range(count) if layer not in half]}  # fmt: skip
    worst = sorted(range(count), key=each.__getitem__, reverse=True)[:NUM_SHOWN]
    show(("most sensitive layers", "nats, if in 4 bits alone"), [(layer, each[layer]) for layer in worst])
    rows = [(name, sum(each[layer] for layer in layers),
             divergence(right, logits(backend, load(backend, Narrowed(file, layers)), tokens)))
            for name, layers in together.items()]  # fmt: skip
    show(("layers in 4 bits", "predicted nats: the sum", "measured nats"), rows)
    draw(asked.svg, "What 4 bits cost in one layer", "layer", "nats", {"KL": list(enumerate(each))})


if __name__ == "__main__":
    main()
