"""`surefoot serve` that cannot start: it says why, and leaves no folder behind."""

import socket
from pathlib import Path

import pytest

from tests.cli.process import run
from tests.stories import stories_gguf

MODEL = "MODEL"  # stands for a model that is there


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["missing.gguf"], "no such file"),
        ([MODEL, "missing.gguf"], "no such file"),
        ([MODEL, "--keys", "missing.toml"], "missing.toml"),
        ([MODEL, "--sampling", "luck=1"], "no sampling parameter"),
        ([MODEL, "--fleet-key", "missing.key"], "missing.key"),
        ([MODEL, "--kv-memory", "1kB"], "MiB are left for keys and values"),
        ([MODEL, "--speculate", "wildly"], "speculate is"),
        ([MODEL, "--state-dir", "HOME/state", "--kv-memory", "1kB"], "MiB are left for keys and values"),
    ],
)
def test_a_start_that_fails_leaves_nothing(home: Path, words: list[str], reason: str) -> None:
    named = [str(stories_gguf()) if word == MODEL else word.replace("HOME", str(home)) for word in words]
    ended = run("serve", *named, "--port", "0")
    assert ended.returncode == 1
    assert reason in ended.stderr
    assert list(home.iterdir()) == []


def test_a_port_in_use_leaves_nothing(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("serve", str(stories_gguf()), "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "another program uses it" in ended.stderr
    assert list(home.iterdir()) == []
