"""Models of a hub are planned from their headers: as from the files, with a few megabytes read."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from surefoot.weights import gguf_header
from tests.cli.process import COMMAND
from tests.smollm2 import find_file
from tests.waiting import PATIENCE_S
from tests.weights.local_hub import LocalHub, serve_hub

MOST_BYTES = 10_000_000


def plan(model: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """In a process of its own: huggingface_hub reads its settings once."""
    words = ["plan", model, "--on", "epyc-7763", "--users", "2", "--no-search", "--json"]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    planned: dict[str, Any] = json.loads(done.stdout)
    return planned


def settings(hub: LocalHub, home: Path) -> dict[str, str]:
    return {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}


@pytest.mark.reference
def test_a_gguf_file(tmp_path: Path) -> None:
    file = find_file()
    with serve_hub({file.name: file.read_bytes()}) as hub:
        assert plan("owner/name:Q4_1", settings(hub, tmp_path)) == plan(str(file))
        assert 0 < hub.num_sent[file.name] < MOST_BYTES < file.stat().st_size
    assert not list(tmp_path.rglob("*.gguf"))  # nothing is kept


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "name"
    pytest.importorskip("tests.models.tiny").save("llama", folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serve_hub(files) as hub:
        assert plan("owner/name", settings(hub, tmp_path)) == plan(str(folder))
        assert "tokenizer.json" not in hub.num_sent


def test_a_header_is_whole_at_its_last_byte_and_not_before(tmp_path: Path) -> None:
    data = find_file().read_bytes()[: 4 << 20]
    low, high = 1, len(data)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_whole(data[:middle], tmp_path) else (middle + 1, high)
    assert 1 < low < len(data)
    assert not _is_whole(data[: low - 1], tmp_path)
    assert data[low : -(-low // 32) * 32] == bytes(-low % 32)  # what follows is padding up to the first tensor


def _is_whole(data: bytes, folder: Path) -> bool:
    (folder / "part.gguf").write_bytes(data)
    return gguf_header.is_header_whole(folder / "part.gguf")
