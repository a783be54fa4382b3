"""Tiny Medusa heads in both published forms, and their arithmetic in torch as the paper describes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.ops.arrays import F32

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[reference]'")
numpy_files = pytest.importorskip("safetensors.numpy")
FORMS = ("medusa", "vllm")


@dataclass(frozen=True)
class TinyMedusa:
    """blocks[head] are (weight, bias) of each; outputs[head] makes logits."""

    blocks: tuple[tuple[tuple[F32, F32 | None], ...], ...]
    outputs: tuple[F32, ...]


def make_heads(output: F32, num_heads: int = 3, num_blocks: int = 1, seed: int = 4, *, bias: bool = True) -> TinyMedusa:
    """output: the target's. Heads are near it, so that drafts for targets of `tiny` are sometimes right."""
    rng, (_, width) = np.random.default_rng(seed), output.shape

    def drawn(scale: float, *shape: int) -> F32:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    blocks = tuple(
        tuple((drawn(width**-0.5, width, width), drawn(0.3, width) if bias else None) for _ in range(num_blocks))
        for _ in range(num_heads)
    )
    return TinyMedusa(blocks, tuple((output + drawn(0.05, *output.shape)).astype(np.float32) for _ in blocks))


def save(heads: TinyMedusa, form: str, folder: Path, **changes: F32 | None) -> Path:
    """The heads' folder. changes: tensors by name, with __ for a dot; None: left out. The published config of Medusa's
    own form names other numbers of heads than its file has."""
    folder.mkdir(exist_ok=True)
    tensors: dict[str, Any] = {}
    for head, (blocks, output) in enumerate(zip(heads.blocks, heads.outputs, strict=True)):
        for number, (weight, bias) in enumerate(blocks):
            name = f"{head}.{number}.linear" if form == "medusa" else f"blocks.{head}.layers.{number}"
            tensors |= {f"{name}.weight": weight} | ({} if bias is None else {f"{name}.bias": bias})
        tensors[f"{head}.{len(blocks)}.weight" if form == "medusa" else f"lm_heads.{head}.weight"] = output
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1} if form == "medusa" else {"model_type": "medusa"}
    (folder / "config.json").write_text(json.dumps(config))
    tensors |= {name.replace("__", "."): values for name, values in changes.items()}
    kept = {name: np.ascontiguousarray(values) for name, values in tensors.items() if values is not None}
    numpy_files.save_file(kept, folder / "medusa_lm_head.safetensors")
    return folder


def logits(heads: TinyMedusa, number: int, normed: Any) -> Any:
    """Of head `number` for normed hidden states, in float64."""
    x = torch.tensor(np.asarray(normed), dtype=torch.float64)
    for weight, bias in heads.blocks[number]:
        inside = x @ torch.tensor(weight).double().T + (0 if bias is None else torch.tensor(bias).double())
        x = x + torch.nn.functional.silu(inside)
    return (x @ torch.tensor(heads.outputs[number]).double().T).numpy()
