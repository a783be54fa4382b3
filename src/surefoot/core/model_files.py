"""Safe reading of a model's files: regular files of bounded size, inside the model's folder.

A model's folder is untrusted. A FIFO or a device in place of config.json must not block the reader, a symbolic link
must not lead to another of the user's files, and JSON must not nest deeper than recursive parsers can follow.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from surefoot.core.json_bounds import nests_deeper

MAX_CONFIG_BYTES = 8 << 20  # config.json: kilobytes in practice; tokenizer_config.json: 1.2 MB (Gemma 3)
MAX_TEXT_BYTES = 64 << 20  # tokenizer.json, indices: Gemma 3's tokenizer.json takes 33 MB
MAX_DEPTH = 32  # of lists and objects in one another: tokenizer.json has 8
HUB_CACHE = "models--"  # of huggingface_hub: models--OWNER--NAME/snapshots/COMMIT/FILE links to models--…/blobs


class ModelFileError(ValueError):
    """A model's file cannot be used. The message says what to do about it."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A FIFO, a device or a folder is refused without blocking."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ModelFileError(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelFileError(f"{path} is not a regular file: put a copy of the file itself there")
    return os.fdopen(descriptor, "rb")


def in_folder(folder: Path, name: str) -> Path | None:
    """The path of a file in a model's folder, or None if there is none. Links may not lead out of the folder."""
    path = folder / name
    if not os.path.lexists(path):
        return None
    try:
        target, root = path.resolve(strict=True), folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a ring
        raise ModelFileError(f"{path} is a link that leads nowhere ({error}): fetch the model again") from None
    blobs = target.parent
    if not target.is_relative_to(root) and not (blobs.name == "blobs" and blobs.parent.name.startswith(HUB_CACHE)):
        raise ModelFileError(f"{path} is a link to {target}, outside of the model's folder: put a copy there")
    return path


def read_bytes(path: Path, max_bytes: int) -> bytes:
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ModelFileError(f"{path} is larger than {max_bytes >> 20} MiB: it is damaged, or not what its name says")
    return data


def read_text(path: Path, max_bytes: int) -> str:
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is not UTF-8 ({error.reason}): fetch it again") from None


def read_json(path: Path, max_bytes: int) -> dict[str, Any]:
    """The JSON object in the file."""
    value = _read_value(path, max_bytes)
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is not a JSON object: fetch it again")
    return value


def read_json_objects(path: Path, max_bytes: int) -> list[dict[str, Any]]:
    """The list of JSON objects in the file."""
    value = _read_value(path, max_bytes)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ModelFileError(f"{path} is not a list of JSON objects: fetch it again")
    return value


def _read_value(path: Path, max_bytes: int) -> Any:
    text = read_text(path, max_bytes)
    check_depth(text.encode(), path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON ({error}): fetch it again") from None


def check_depth(text: bytes, what: object) -> None:
    """Refuse JSON that nests deeper than MAX_DEPTH, without parsing it."""
    if nests_deeper(text, MAX_DEPTH):
        raise ModelFileError(f"{what} nests deeper than {MAX_DEPTH} levels, or its brackets do not match")
