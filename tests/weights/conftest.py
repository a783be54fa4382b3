"""Real model files, downloaded once into a cache outside of the checkout. A test without its file is skipped."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "shared" / "tools" / "get-models"
CACHE = Path.home() / ".cache" / "surefoot" / "models"


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    def fetch(name: str) -> Path:
        if not TOOL.exists():
            pytest.skip(f"{TOOL} is not there to fetch {name} with")
        done = subprocess.run([TOOL, CACHE, name], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{name} cannot be fetched: {done.stderr.strip()[-200:]}")
        return Path(done.stdout.splitlines()[0])

    return fetch
