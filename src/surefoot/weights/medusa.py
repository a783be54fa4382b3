"""Reads Medusa heads as they are published: folders of Medusa itself (medusa_lm_head.safetensors) and of vLLM."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.core.model_files import MAX_CONFIG_BYTES, in_folder, read_json
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.huggingface import HuggingFaceCheckpoint, stored_tensors
from surefoot.weights.huggingface_names import MAX_MEDUSA_BLOCKS, MAX_MEDUSA_HEADS, MEDUSA
from surefoot.weights.metadata import MetadataError

# Head, block, kind of a block's tensor; head and kind of the matrix behind the blocks. Medusa numbers it as if it were
# another block.
BLOCKS = (r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.linear\.(weight|bias)", r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
OUTPUTS = (r"(?:medusa_heads?\.)?(\d+)\.\d+\.(weight|bias)", r"lm_heads\.(\d+)\.(weight|bias)")


@dataclass(frozen=True)
class MedusaFile:
    """Published heads, opened but not read. Their tensors: medusa.HEAD.BLOCK and medusa.HEAD.output."""

    path: Path
    checkpoint: Checkpoint
    num_blocks: tuple[int, ...]  # of each head


def is_medusa(path: Path) -> bool:
    config = in_folder(path, "config.json") if path.is_dir() else None
    return config is not None and is_medusa_config(read_json(config, MAX_CONFIG_BYTES))


def is_medusa_config(config: Mapping[str, Any]) -> bool:
    return "medusa_num_heads" in config or config.get("model_type") == MEDUSA


def open_medusa(folder: Path) -> MedusaFile:
    """The heads in this folder. Raises MetadataError if their kind is not supported. How many there are is counted:
    published configs name other numbers than their files have."""
    try:
        stored = stored_tensors(folder)
        renamed = {_renamed(name): tensor for name, tensor in stored.items()}
        checkpoint = HuggingFaceCheckpoint({"model_type": MEDUSA}, renamed)
        if len(checkpoint.tensors) < len(stored):
            most = f"{MAX_MEDUSA_HEADS} heads or {MAX_MEDUSA_BLOCKS} blocks of one"
            raise MetadataError(f"it has a part twice, or more than {most}")
        return MedusaFile(folder, checkpoint, _num_blocks(checkpoint))
    except MetadataError as wrong:
        raise MetadataError(f"{folder}: {wrong}") from None


def _renamed(name: str) -> str:
    for pattern in BLOCKS:
        if found := re.fullmatch(pattern, name):
            return f"{MEDUSA}.{found[1]}.{found[2]}.{found[3]}"
    for pattern in OUTPUTS:
        if found := re.fullmatch(pattern, name):
            return f"{MEDUSA}.{found[1]}.output.{found[2]}"
    raise MetadataError(f"it has a tensor {name}, which is none of a Medusa head that is supported")


def _num_blocks(checkpoint: Checkpoint) -> tuple[int, ...]:
    parts = [name.split(".") for name in checkpoint.tensors if name.endswith(".weight")]
    heads = {int(head) for _, head, *_ in parts}
    blocks = [{int(part) for _, head, part, _ in parts if int(head) == number and part != "output"} for number in heads]
    if not heads or heads != set(range(len(heads))) or any(own != set(range(len(own))) for own in blocks):
        raise MetadataError("its heads or their blocks are not numbered from 0 on")
    return tuple(map(len, blocks))
