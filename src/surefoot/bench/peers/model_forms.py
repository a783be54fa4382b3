"""Where a model's folder holds the formats that peers read."""

from pathlib import Path

from surefoot.bench.peers.process import PeerError

FORMS = "peers"  # the folder of the forms
GGUF = "q8_0.gguf"
W8A8 = "w8a8"
OPENVINO = "openvino-int8"


def gguf_form(model: Path) -> Path:
    if model.suffix == ".gguf":
        return model
    file = model / FORMS / GGUF
    if not file.exists():
        raise PeerError(f"reads GGUF files only, and {file} is not there")
    return file


def folder_form(model: Path) -> Path:
    """A Hugging Face folder: the one with 8-bit weights, if there is one."""
    if not model.is_dir():
        raise PeerError(f"reads Hugging Face folders only, not {model.name}")
    coded = model / FORMS / W8A8
    return coded if coded.exists() else model
