"""schemathesis over /openapi.json: whatever it thinks of, nothing fails and every answer is as promised."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.server.process import Server
from tests.stories import stories_gguf

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
PROGRAM = Path(sys.executable).with_name("schemathesis")


@pytest.mark.long  # alone at the end it would hold up a whole run
def test_whatever_is_sent(tmp_path: Path) -> None:
    """SUREFOOT_EXAMPLES=100 for a long look: every boundary of every field, and calls that follow each other."""
    if not PROGRAM.exists():
        pytest.skip("schemathesis is not installed: pip install -e '.[dev]'")
    num_examples = os.environ.get("SUREFOOT_EXAMPLES")
    phases = "coverage,fuzzing,stateful" if num_examples else "fuzzing"
    server = Server(stories_gguf(), "--max-context", "256", "--pooling", "mean")
    words = ["run", f"{server.root}/openapi.json", "--checks", CHECKS, "--seed", "1", "--no-color"]
    words += ["--max-examples", num_examples or "12", "--phases", phases, "--generation-database", ":memory:"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=600
    )
    ready = httpx.get(f"{server.root}/ready").status_code
    log = server.stop()
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "Tested: 42" in done.stdout
    assert ready == 200
    assert "Traceback" not in log
