"""Describes a file that is not GGUF, with advice for the user."""

from pathlib import Path

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
PICKLE_ADVICE = (
    "which may run code and is not read: take the model's safetensors or a GGUF file, or save it again with "
    "transformers (save_pretrained)"
)
HEAD_BYTES = 512


def describe_wrong_file(path: Path, head: bytes) -> str:
    """What the file is, judged by its name and its first bytes, and what to do instead."""
    text = head.lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself: run git lfs pull, or download the file"
    if text.startswith((b"<!doctype html", b"<html")):
        return "is a web page: download the file itself (on the hub, its /resolve/ address, not /blob/)"
    if path.suffix == ".safetensors" or head[8:10] == b'{"':
        return "is a safetensors file: give the folder that it lies in, with config.json and tokenizer.json"
    if path.suffix in PICKLES or head.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x04")):
        return f"is a PyTorch file, a pickle, {PICKLE_ADVICE}"
    if text.startswith((b"{", b"[")):
        return "is a JSON file: give the folder that it lies in, or a GGUF file"
    return f"starts with {head[:4]!r}, not b'GGUF': it is not a GGUF file, or damaged; fetch it again"
