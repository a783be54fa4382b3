"""aider, as a program. It pins all that it needs, and wants Python 3.12 or older: SUREFOOT_AIDER says where it is."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.clients import QUIET
from tests.server.process import Server
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.long

AIDER = os.environ.get("SUREFOOT_AIDER")
OPTIONS = (
    "--model", "openai/small", "--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update",
    "--analytics-disable", "--no-auto-lint", "--no-detect-urls", "--no-pretty", "--map-tokens", "0",
)  # fmt: skip


@pytest.mark.skipif(AIDER is None, reason="aider is not installed: see tests/clients/README.md")
@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_a_question_about_a_file(server: Server, tmp_path: Path, how: str) -> None:
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    environment = {
        **QUIET, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "OPENAI_API_BASE": server.url,
        "OPENAI_API_KEY": "none",
    }  # fmt: skip
    before = server.metric("vllm:generation_tokens_total")
    ran = subprocess.run(
        [str(AIDER), *OPTIONS, how, "--message", "/ask What does add do?", "sums.py"], cwd=tmp_path, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "received." in ran.stdout, ran.stdout
    assert server.metric("vllm:generation_tokens_total") > before
