"""Writes named numpy arrays to a safetensors file and reads them back."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.compress.errors import CompressError
from surefoot.machine.atomic_write import atomic_write
from surefoot.ops.arrays import Array


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CompressError("safetensors is not installed: pip install 'surefoot[compress]'") from None


def save_arrays(arrays: Mapping[str, Array], path: Path, metadata: Mapping[str, str]) -> None:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_write(path) as beside:
        _package("safetensors.numpy").save_file(contiguous, beside, metadata=dict(metadata))
        beside.chmod(_usual_mode())


def _usual_mode() -> int:
    """The mode of a new file under this process's umask. safetensors makes its files readable by their owner only, but
    the server may run as another user."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    with _package("safetensors").safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def check_output_path(path: Path) -> None:
    """Refuses a path that cannot be written, before hours of work for it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CompressError(f"{path} cannot be written: name a file in a folder that exists")
