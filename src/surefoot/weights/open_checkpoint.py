"""Opens a checkpoint: a GGUF file or a Hugging Face folder."""

from pathlib import Path

from surefoot.weights.gguf import GgufFile
from surefoot.weights.huggingface import HuggingFaceCheckpoint


def open_checkpoint(path: Path) -> GgufFile | HuggingFaceCheckpoint:
    return HuggingFaceCheckpoint.open(path) if path.is_dir() else GgufFile(path)
