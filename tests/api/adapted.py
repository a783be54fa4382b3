"""A tiny jina-embeddings-v3 as its publisher stores it: each matrix with the factors of an adapter for each task."""

import json
from pathlib import Path
from typing import Any

from tests.api import bert, jina
from tests.api.pooled import torch, transformers

TASKS = ("retrieval.query", "separation", "text-matching")
RANK, ALPHA = 4, 2.0
TABLES = ("word_embeddings", "token_type_embeddings")  # whose factors are stored the other way round
# What its config.json says, and transformers' form does not.
PUBLISHED: dict[str, Any] = {
    "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "position_embedding_type": "rotary",
    "rotary_emb_base": 20000.0, "lora_adaptations": list(TASKS), "lora_alpha": ALPHA, "lora_rank": RANK,
}  # fmt: skip


def save(folder: Path) -> Path:
    """The folder, with sentence-transformers' files."""
    bert.save(folder, "jina_embeddings_v3")
    file = folder / "model.safetensors"
    torch.manual_seed(5)
    stored: dict[str, Any] = {}
    for name, tensor in jina.safetensors.load_file(file).items():
        stored.update(_with_factors(f"roberta.{name}", tensor) if tensor.ndim == 2 else {f"roberta.{name}": tensor})
    jina.safetensors.save_file(stored, file)
    config = json.loads((folder / "config.json").read_text())
    kept = {key: value for key, value in config.items() if not key.startswith("rope")}
    (folder / "config.json").write_text(json.dumps({**kept, **PUBLISHED}))
    return folder


def _with_factors(name: str, matrix: Any) -> dict[str, Any]:
    base, (rows, columns) = f"{name.removesuffix('.weight')}.parametrizations.weight.", matrix.shape
    left, right = 0.3 * torch.randn(len(TASKS), rows, RANK), 0.1 * torch.randn(len(TASKS), RANK, columns)
    first, second = (left, right) if any(table in name for table in TABLES) else (right, left)
    return {f"{base}original": matrix, f"{base}0.lora_A": first, f"{base}0.lora_B": second}


def reference(task: str | None, folder: Path) -> Any:
    """transformers' model, whose matrices have the task's adapter: W + (B A) alpha / rank, in float64."""
    stored = jina.safetensors.load_file(folder / "model.safetensors")
    weights = {name.removeprefix("roberta."): tensor for name, tensor in stored.items() if "lora_" not in name}
    merged = {name.replace(".parametrizations.weight.original", ".weight"): tensor for name, tensor in weights.items()}
    for name in list(merged):
        base = f"roberta.{name.removesuffix('.weight')}.parametrizations.weight.0.lora_"
        if task is not None and f"{base}A" in stored:
            a, b = (stored[base + factor][TASKS.index(task)].double() for factor in "AB")
            product = a @ b if any(table in name for table in TABLES) else b @ a
            merged[name] = (merged[name].double() + product * ALPHA / RANK).float()
    plain = folder.parent / f"{folder.name}-{task}"
    bert.reference("jina_embeddings_v3").save_pretrained(plain)
    jina.safetensors.save_file(merged, plain / "model.safetensors", {"format": "pt"})
    return transformers.AutoModel.from_pretrained(plain, dtype=torch.float32).eval()
