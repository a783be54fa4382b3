"""The clients themselves, pinned (requirements.txt), against a real server.

They run in an environment of their own, since some hold back packages that surefoot's tests use: SUREFOOT_CLIENTS is
its Python, and .ci/run makes it.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.clients.clients import QUIET
from tests.server.process import Server

pytestmark = pytest.mark.long

SUITE = Path(__file__).parent / "suite"
MODULES = {
    "openai": "openai", "anthropic": "anthropic", "ollama": "ollama", "litellm": "litellm",
    "langchain": "langchain_openai", "instructor": "instructor", "llm": "llm", "cohere": "cohere",
}  # fmt: skip
RERANKERS = ("cohere",)  # clients that rerank


def python_of(client: str) -> str:
    """Where the client is installed. What .ci/run installs must be there."""
    if given := os.environ.get("SUREFOOT_CLIENTS"):
        return given
    if find_spec(MODULES[client]) is None:
        pytest.skip(f"{MODULES[client]} is not installed: see tests/clients/README.md")
    return sys.executable


@pytest.mark.parametrize("client", MODULES)
def test_client_works_unmodified(client: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    python = python_of(client)
    server: Server = request.getfixturevalue("ranking" if client in RERANKERS else "server")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    environment = {
        **kept, **QUIET, "SUREFOOT_ROOT": server.root, "HOME": str(tmp_path), "LLM_USER_PATH": str(tmp_path),
        "PYTHONPATH": str(SUITE),
    }  # fmt: skip
    command = [python, "-m", "pytest", "--quiet", "--noconftest", "-p", "no:cacheprovider", "--rootdir", str(SUITE)]
    command += ["-c", str(SUITE / "pytest.ini"), str(SUITE / f"check_{client}.py")]
    ran = subprocess.run(command, env=environment, cwd=SUITE, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout


def test_every_check_has_its_client() -> None:
    assert {path.stem.removeprefix("check_") for path in SUITE.glob("check_*.py")} == set(MODULES)
