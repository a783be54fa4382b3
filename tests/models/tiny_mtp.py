"""Tiny models with the layer that drafts (multi-token prediction), which transformers leaves out when it reads a file.

The layer is put together from transformers' own parts, as published checkpoints have it.
"""

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from surefoot.models import Model, load
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.weights.derived import Stored
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import tiny
from tests.models.in_memory import InMemory

torch = tiny.torch
NAMES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


@functools.cache
def modules(name: str) -> Any:
    """By their names in a checkpoint. What joins token and row mostly passes the token on, so that drafts are often
    right: the models' likeliest successors depend on the token most."""
    inner = tiny.reference(name).model
    attention = next(layer for layer in inner.layers if hasattr(layer, "self_attn"))
    width = inner.config.hidden_size
    made = torch.nn.ModuleDict(
        {
            "fc": torch.nn.Linear(2 * width, width, bias=False),
            "norm": copy.deepcopy(inner.norm),
            "pre_fc_norm_embedding": copy.deepcopy(inner.norm),
            "pre_fc_norm_hidden": copy.deepcopy(inner.norm),
            "layers": torch.nn.ModuleList([copy.deepcopy(attention)]),
        }
    )
    torch.manual_seed(3)
    with torch.no_grad():
        for part, parameter in made.named_parameters():
            base = torch.zeros_like(parameter) if "norm" in part else parameter
            parameter.copy_(tiny.draw(part, base, name, tied=False))
        made["fc"].weight.mul_(0.3)
        made["fc"].weight[:, :width] += torch.eye(width)
    return made.eval()


def stored(name: str) -> dict[str, Stored]:
    """The checkpoint's tensors, by the names of published files."""
    drafting = {f"mtp.{key}": value for key, value in modules(name).state_dict().items()}
    tensors = {**tiny.reference(name).state_dict(), **drafting}
    return {key: InMemory(value.detach().numpy()) for key, value in tensors.items()}


@functools.cache
def checkpoint(name: str) -> HuggingFaceCheckpoint:
    return HuggingFaceCheckpoint(tiny.reference(name).config.to_dict(), stored(name))


def save(name: str, folder: Path) -> None:
    """As a Hugging Face folder, with a token for each byte."""
    tiny.save(name, folder)
    tensors = {key: np.ascontiguousarray(tensor.floats()) for key, tensor in stored(name).items()}
    save_file(tensors, folder / "model.safetensors")


def make_model(backend: Backend, name: str) -> Model:
    """In integers: W8."""
    return load(backend, checkpoint(name))


def reference_logits(name: str, tokens: Sequence[int]) -> F32:
    """Row t: the guess of token t + 1, from token t and the hidden row of token t - 1."""
    model, parts, ids = tiny.reference(name), modules(name), torch.tensor([list(tokens)])
    with torch.no_grad():
        hidden = model.model(ids).last_hidden_state
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
        embedded = parts["pre_fc_norm_embedding"](model.model.embed_tokens(ids))
        joined = parts["fc"](torch.cat([embedded, parts["pre_fc_norm_hidden"](before)], dim=-1))
        count = len(tokens)
        positions = torch.arange(count)[None]
        mask = torch.full((1, 1, count, count), -torch.inf).triu(1)
        angles = model.model.rotary_emb(joined, positions)
        out = parts["layers"][0](joined, position_embeddings=angles, attention_mask=mask)
        logits: F32 = model.lm_head(parts["norm"](out))[0].numpy()
    return logits
