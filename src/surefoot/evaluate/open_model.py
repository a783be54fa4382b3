"""Opens a model's checkpoint and tokenizer, from a GGUF file or a Hugging Face folder."""

from pathlib import Path

from surefoot.text import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from surefoot.weights import Checkpoint, open_checkpoint


def open_model(path: Path) -> tuple[Checkpoint, Tokenizer]:
    checkpoint = open_checkpoint(path)
    tokenizer = tokenizer_from_folder(path) if path.is_dir() else tokenizer_from_gguf(checkpoint.metadata)
    return checkpoint, tokenizer
