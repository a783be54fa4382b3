"""A reader who types what the pages show, with a small model in place of every model that they name."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.cli.process import COMMAND
from tests.docs.pages import ROOT, Shown, blocks
from tests.server.process import Server
from tests.stories import stories_gguf

MODEL = "model.gguf"
ADDRESS = "http://127.0.0.1:8000"
HUB_ID = re.compile(r"\b([A-Za-z][\w-]+)/([\w.-]+-GGUF):(\w+)")
REVISION = "0" * 40
NUM_CHARACTERS = 1600  # of the text that commands read: quick, and more than 1024 tokens
LIMIT_S = 600  # for one command, on a busy machine


@cache
def shared_server() -> Server:
    """All pages' clients talk to this one; it knows the models by every name that they use."""
    return Server(stories_gguf(), "--any-model-name", "--speculate", "off", "--pooling", "mean")


@cache
def folder_of(page: str) -> Path:
    """Where the page's commands run, one after the other: with a model, a text, and the files that the page shows."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-docs-"))
    (folder / MODEL).symlink_to(stories_gguf())
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "notes.txt").write_text((ROOT / "README.md").read_text()[:NUM_CHARACTERS])
    (folder / "handbook.txt").write_text((ROOT / "README.md").read_text()[:200])
    lines = [block.text for block in blocks(ROOT / page) if block.language == "json"]
    (folder / "requests.jsonl").write_text("".join(lines))
    return folder


@cache
def environment() -> Mapping[str, str]:
    """`surefoot` and `python` are these; models of the hub are found in the cache, as when they were fetched before."""
    home = Path(tempfile.mkdtemp(prefix="surefoot-home-"))
    (home / "bin").mkdir()
    for name, words in (("surefoot", COMMAND), ("python", [sys.executable])):
        (home / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        (home / "bin" / name).chmod(0o755)
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ, "PATH": path, "PYTHONPATH": paths, "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "1",
        "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache"),
    }  # fmt: skip


def cache_hub_models(text: str) -> None:
    """Put the small model where huggingface_hub keeps what it has fetched under the ids in the text."""
    for owner, name, tag in HUB_ID.findall(text):
        repository = Path(environment()["HF_HOME"]) / "hub" / f"models--{owner}--{name}"
        snapshot = repository / "snapshots" / REVISION
        if not snapshot.exists():
            snapshot.mkdir(parents=True)
            (repository / "refs").mkdir()
            (repository / "refs" / "main").write_text(REVISION)
            (snapshot / f"{name.removesuffix('-GGUF').lower()}-{tag.lower()}.gguf").symlink_to(stories_gguf())


def follow(shown: Shown) -> None:
    text = shown.text
    cache_hub_models(text)
    if text.startswith("surefoot serve ") and "--help" not in text:
        _serve(shown.page, text)
        return
    if ADDRESS in text:
        text = text.replace(ADDRESS, shared_server().root)
    words = [sys.executable, "-c", text] if shown.is_python else ["bash", "-c", f"set -o pipefail; {text}"]
    printed = _run(words, shown.page)
    assert shown.printed is None or printed == shown.printed


def _run(words: list[str], page: str) -> str:
    # No input: a conversation ends at once.
    done = subprocess.run(
        words, cwd=folder_of(page), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _serve(page: str, command: str) -> None:
    """Starts, becomes ready, and ends when it is told to. On loopback and any free port."""
    words = shlex.split(command)[1:]
    for option, value in (("--port", "0"), ("--host", "127.0.0.1")):
        if option in words:
            words[words.index(option) + 1] = value
    words += [] if "--port" in words else ["--port", "0"]
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=folder_of(page), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("ready "):
            process.terminate()
            break
    said += process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode in (0, -signal.SIGTERM), said
    assert "ready " in said, said


def stop() -> None:
    if shared_server.cache_info().currsize:
        shared_server().stop()


def is_json(text: str) -> bool:
    try:
        return all(json.loads(line) for line in text.splitlines())
    except ValueError:
        return False
