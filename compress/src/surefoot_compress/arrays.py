"""Writes named numpy arrays to a safetensors file and reads them back."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from surefoot.machine.atomic_write import atomic_write
from surefoot.ops.arrays import Array
from surefoot_compress.errors import CompressError


def save_arrays(arrays: Mapping[str, Array], path: Path, metadata: Mapping[str, str]) -> None:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_write(path) as beside:
        save_file(contiguous, beside, metadata=dict(metadata))
        beside.chmod(_usual_mode())


def _usual_mode() -> int:
    """The mode of a new file under this process's umask. safetensors makes its files readable by their owner only, but
    the server may run as another user."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def check_output_path(path: Path) -> None:
    """Refuses a path that cannot be written, before hours of work for it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CompressError(f"{path} cannot be written: name a file in a folder that exists")
