"""Headers of GGUF files that llama.cpp's converter made of the tiny models, kept in converted.json.

`python -m tests.models.converted SOURCE` makes them again. SOURCE is llama.cpp's source tree.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.ops.arrays import F32
from surefoot.weights.gguf import GgufFile
from surefoot.weights.metadata import check_gguf
from tests.models import tiny

HEADERS = Path(__file__).with_name("converted.json")
SCRIPT = Path(__file__).with_name("convert_script.py")
NAMES = (
    "deepseek_v2_groups", "deepseek_v3", "deepseek_v32", "deepseek_v3_groups", "ernie4_5", "ernie4_5_moe", "exaone4",
    "exaone4_global", "gemma3n", "gemma4", "gemma4_moe", "glm4_moe", "glm4_moe_groups", "glm4_moe_lite", "glm_moe_dsa",
    "granite", "granitemoehybrid", "granitemoehybrid_attention", "granitemoehybrid_dense", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "kimi_linear", "lfm2", "lfm2_moe_tied", "llama4", "minimax_m2", "ministral3", "mistral4",
    "mistral4_groups", "nemotron_h", "nemotron_h_moe", "olmo2", "olmo3", "phi4_mini", "qwen3_5_moe",
    "qwen3_5_square", "qwen3_next", "seed_oss", "smollm3",
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]


class Header:
    """A GGUF file's metadata and its tensors' shapes, as a checkpoint. Only RoPE's frequencies have values."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        lists = {key: np.array(value) for key, value in header["metadata"].items() if isinstance(value, list)}
        self.metadata: Mapping[str, Any] = {**header["metadata"], **lists}
        self.tensors = {name: Shape(tuple(shape)) for name, shape in header["tensors"].items()}
        self._values = header["values"]
        check_gguf(self.metadata)

    def floats(self, name: str) -> F32:
        return np.array(self._values[name], np.float32)


def stored(name: str) -> Header:
    return Header(json.loads(HEADERS.read_text())[name])


def header(file: GgufFile) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    own = (key for key in file.metadata if not key.startswith(("general.", "tokenizer.")))
    return {
        "metadata": {key: plain(file.metadata[key]) for key in ("general.architecture", *own)},
        "tensors": {name: list(tensor.shape) for name, tensor in file.tensors.items()},
        "values": {name: file.floats(name).tolist() for name in file.tensors if name.startswith("rope_")},
    }


def convert(source: Path, folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """GGUF files of the tiny models, by name."""
    for name in names:
        (folder / name).mkdir()
        tiny.save(name, folder / name)
    folders = [str(folder / name) for name in names]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{source / 'gguf-py'}"}
    subprocess.run([sys.executable, str(SCRIPT), *folders], check=True, stderr=subprocess.DEVNULL, env=environment)
    return {name: folder / name / "model.gguf" for name in names}


def main(source: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = convert(Path(source), Path(folder), NAMES)
        headers = {name: header(GgufFile(path)) for name, path in files.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(made)}" for name, made in headers.items())
    HEADERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
