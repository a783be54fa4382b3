"""A model in the forms that peers read: a folder holds them beside its own files."""

from pathlib import Path

from surefoot.bench.peers.process import PeerError

FORMS = "peers"  # the folder of the forms
GGUF = "q8_0.gguf"


def gguf_form(model: Path) -> Path:
    if model.suffix == ".gguf":
        return model
    file = model / FORMS / GGUF
    if not file.exists():
        raise PeerError(f"reads GGUF files only, and {file} is not there")
    return file
