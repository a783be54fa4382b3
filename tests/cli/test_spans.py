"""The line with the duration of each part of a start, and modules that a start must not import."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.cli.progress import Spans, lacks_bytecode, process_age_s
from tests.server.process import Server
from tests.stories import stories_gguf

# What serving a chat does without: templates (another process renders them), bars, training.
NOT_TO_SERVE = ("jinja2", "rich", "torch", "transformers", "safetensors", "prompt_toolkit")


def test_parts_follow_each_other() -> None:
    now = 0.0
    spans, reports = Spans(lambda: now), list[tuple[int, int]]()
    report = spans.ending("weights", lambda done, total: reports.append((done, total)))
    now = 0.5
    spans.end("imports")
    for now, done in ((0.6, 1), (0.75, 2), (0.9, 2)):  # noqa: B007
        report(done, 2)
    now = 1.0
    spans.end("server")
    assert reports == [(1, 2), (2, 2), (2, 2)]
    assert re.fullmatch(
        r"started  in 1\.00 s \(\d+\.\d\d s of processor time\): imports 0\.50, weights 0\.25, server 0\.25",
        spans.line(),
    )


def test_age_is_of_the_process() -> None:
    code = "import time; time.sleep(0.3); from surefoot.cli.progress import process_age_s; print(process_age_s())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.3 <= float(done.stdout) < process_age_s()


def test_bytecode_is_missed_only_where_it_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "never_compiled.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for forbidden in (True, False):
        monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
        assert lacks_bytecode("never_compiled") == forbidden
    assert not lacks_bytecode("no_such_module")


def test_serving_imports_nothing_that_it_does_not_need() -> None:
    code = "import sys, surefoot.cli.serve, surefoot.server.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "starlette" in loaded
    assert [name for name in loaded if name in NOT_TO_SERVE] == []


def test_server_says_where_its_start_went() -> None:
    server = Server(stories_gguf(), "--max-context", "64")
    line = server.wait_for(r"started  in \S+ s \(.*\): (.*)\n")[1]
    server.stop()
    parts = [part.rpartition(" ")[0] for part in line.split(", ")]
    assert parts == ["imports", "header", "weights", "tokenizer and passes", "hash", "server"]


def test_the_web_framework_is_not_imported_before_the_weights_are_read() -> None:
    """It is imported beside them, in `serve` (`import_beside`)."""
    code = "import sys, surefoot.cli.serve; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"fastapi", "starlette", "uvicorn"}.isdisjoint(modules)
