"""Named arrays in a safetensors file, and back."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.compress.later import CompressError
from surefoot.machine.atomic_write import written_whole
from surefoot.ops.arrays import Array


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CompressError("safetensors is not installed: pip install 'surefoot[compress]'") from None


def save_arrays(stored: Mapping[str, Array], path: Path, metadata: Mapping[str, str]) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in stored.items()}
    with written_whole(path) as beside:
        _package("safetensors.numpy").save_file(arrays, beside, metadata=dict(metadata))
        beside.chmod(_usual_mode())


def _usual_mode() -> int:
    """Of a new file. safetensors leaves its own to the owner alone, and the server may run as another user."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    with _package("safetensors").safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
