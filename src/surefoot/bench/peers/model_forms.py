"""Finds a model in the formats that peers read."""

from pathlib import Path

from surefoot.bench.peers.install import PeerError

FORMS = "peers"  # subfolder of a model's folder, with the model in peers' formats
GGUF = "q8_0.gguf"
W8A8 = "w8a8"
OPENVINO = "openvino-int8"


def gguf_form(model: Path) -> Path:
    """The model as a GGUF file."""
    if model.suffix == ".gguf":
        return model
    file = model / FORMS / GGUF
    if not file.exists():
        raise PeerError(f"reads GGUF files only, and {file} is not there")
    return file


def folder_form(model: Path) -> Path:
    """The model as a Hugging Face folder, with 8-bit weights if available."""
    if not model.is_dir():
        raise PeerError(f"reads Hugging Face folders only, not {model.name}")
    int8 = model / FORMS / W8A8
    return int8 if int8.exists() else model
