"""Every script of the cookbook does its job with a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.server.conftest import ranking, server
from tests.server.process import Server

__all__ = ["ranking", "server"]
pytestmark = pytest.mark.long

FOLDER = ROOT / "docs/cookbook"
TEXTS = {
    "bees.txt": "Bees live in hives.\n\nA hive has one queen. She lays all eggs.",
    "orders.txt": "Orders above 500 euros are signed by Ms Brandt.\n\nSmaller orders need no signature.",
    "ships.md": "# Ships\n\nThe ferry to the island leaves at nine, and at five in the afternoon.",
}
REVIEWS = ["The kettle is wonderful.", "My toaster burns. I want my money back!", "", "The lamp is a lamp."]


def run(script: str, *words: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, FOLDER / script, *map(str, words)], cwd=cwd, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


def test_every_page_has_a_script_that_it_shows() -> None:
    shown = {page.stem: page.read_text() for page in FOLDER.glob("*.md") if page.name != "README.md"}
    assert {name.replace("-", "_") for name in shown} == {script.stem for script in FOLDER.glob("*.py")}
    for name, text in shown.items():
        assert f"--8<--\n{name.replace('-', '_')}.py\n--8<--\n" in text


def test_documents(server: Server, ranking: Server, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed: pip install -e '.[dev]'")
    notes = write_texts(tmp_path / "notes")
    servers = {"CHAT_URL": server.url, "EMBED_URL": server.url, "RERANK_URL": ranking.url}
    servers |= dict.fromkeys(("CHAT_MODEL", "EMBED_MODEL", "RERANK_MODEL"), "small")
    printed = run("documents.py", "index", notes, cwd=tmp_path, **servers)
    assert [line.rpartition("/")[2] for line in printed.splitlines()] == [
        "bees.txt: 1 passages", "orders.txt: 1 passages", "ships.md: 1 passages",
    ]  # fmt: skip
    printed = run("documents.py", "ask", "Who signs orders?", "--max-tokens", 20, cwd=tmp_path, **servers)
    answer, _, source = printed.strip().rpartition("\n")
    assert answer.strip()
    file, _, tokens = source.removeprefix("from ").partition("; ")
    assert Path(file).parent == notes
    cached, total = int(tokens.split()[0]), int(tokens.split()[2])
    assert 0 < cached < total, "the document was read ahead"


def test_coding_agent(server: Server, tmp_path: Path) -> None:
    printed = run("coding_agent.py", "--url", server.root, "--model", "small", cwd=tmp_path)
    assert printed.count("read_file({'path':") == 3


def test_records(server: Server, tmp_path: Path) -> None:
    (tmp_path / "reviews.txt").write_text("\n".join(REVIEWS))
    words = ("reviews.txt", "records.jsonl", "--url", server.url, "--model", "small", "--poll-s", "0.2")
    assert "completed: 3 of 3" in run("records.py", *words, cwd=tmp_path)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [record["text"] for record in records] == [text for text in REVIEWS if text]
    for record in records:
        assert record.keys() in ({"text", "product", "mood", "wants_refund"}, {"text", "error"})
    assert any("mood" in record for record in records)


def test_open_webui(server: Server, tmp_path: Path) -> None:
    """What the program itself does with it: tests/clients/test_open_webui.py."""
    program = tmp_path / "open-webui"
    program.write_text('#!/bin/sh\necho "$@ $OPENAI_API_BASE_URL $RAG_EMBEDDING_MODEL"\n')
    program.chmod(0o755)
    printed = run("open_webui.py", "--url", server.url, "--embed", "small", "--program", program, cwd=tmp_path)
    assert printed == f"serve --host 127.0.0.1 --port 8080 {server.url} small\n"


def test_nightly(server: Server, tmp_path: Path) -> None:
    notes = write_texts(tmp_path / "notes")
    os.utime(notes / "bees.txt", (0, 0))
    words = (notes, "summaries", "--url", server.url, "--model", "small", "--max-tokens", 24)
    run("nightly.py", *words, cwd=tmp_path)
    (file,) = (tmp_path / "summaries").iterdir()
    first = file.read_text()
    assert [line for line in first.splitlines() if line.startswith("## ")] == ["## orders.txt", "## ships.md"]
    run("nightly.py", *words, cwd=tmp_path)
    assert file.read_text() == first, "the same texts give the same summary"
