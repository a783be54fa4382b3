"""SmolLM2-135M in Q4_1: a real model that talks, fetched once."""

import functools
import subprocess
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
CACHE = Path.home() / ".cache" / "surefoot" / "models"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


@functools.cache
def find_file() -> Path:
    if not (CACHE / NAME).exists():
        tool = SHARED / "tools" / "get-models"
        if not tool.exists():
            pytest.skip(f"{NAME} is not in {CACHE}, and {tool} is not there to fetch it")
        got = subprocess.run([tool, CACHE, "smollm2"], capture_output=True, text=True, check=False)
        if got.returncode:
            pytest.skip(f"smollm2 could not be fetched: {got.stderr[-300:]}")
    return CACHE / NAME
