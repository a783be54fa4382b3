"""`surefoot agent` prints settings that parse; `surefoot warm --agent` computes what an agent asks, before it asks."""

import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from surefoot.cli.coding_agents import AGENTS, RECORDED
from surefoot.cli.main import app
from surefoot.server.answer.public_prefixes import public_chats
from tests.cli.process import run
from tests.server.process import Server
from tests.smollm2 import find_file

PARSERS = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load, "yml": yaml.safe_load}
# An agent of our own in the form of Claude Code: a side request, then tools, rules and the directory. It fails where it
# could read what is its user's, and where the recorder's stream has no end.
AGENT = """#!{python}
import json, os, pathlib, sys, urllib.request
assert sys.argv[1:] == ["-p", "Say hello."]
assert "SECRET" not in os.environ and not any(pathlib.Path.home().glob(".secret"))
def ask(body):
    body = json.dumps(dict(body, model=os.environ["ANTHROPIC_MODEL"], max_tokens=99, stream=True)).encode()
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true", body)
    assert b"message_stop" in urllib.request.urlopen(request).read()
hello = [{{"role": "user", "content": "Hello"}}]
ask({{"messages": hello}})
tools = [{{"name": "Read", "description": "Reads a file. " * 60, "input_schema": {{"type": "object"}}}}]
system = [{{"type": "text", "text": text}} for text in ("You are an agent.", f"Work in {{os.getcwd()}}. " * 9)]
ask({{"messages": hello, "system": system, "tools": tools}})
"""


@pytest.mark.parametrize("name", AGENTS)
def test_settings_name_the_server_and_parse(name: str) -> None:
    words = ["agent", name, "coder", "--url", "http://there:8/v1", "--key", "sf-1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for text in ("http://there:8", "coder", "sf-1", AGENTS[name].install):
        assert text in done.output
    _, files = AGENTS[name].filled("http://there:8", "coder", "sf-1")
    for path, text in files.items():
        assert PARSERS[path.rpartition(".")[2]](text)
        assert text in done.output
        assert "{url}" not in text


def test_unknown_agents_are_named() -> None:
    for words in (["agent", "cursor", "coder"], ["warm", "--agent", "aider", "coder"]):
        refused = run(*words)
        assert refused.returncode == 1
        assert "take one of claude-code, codex, opencode, qwen-code" in refused.stderr


def install_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(AGENT.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_an_agents_request_is_saved_to_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_agent(tmp_path, monkeypatch)
    saved = tmp_path / "claude.json"
    done = run("warm", "--agent", "claude-code", "small", "--save", str(saved))
    assert done.returncode == 0, done.stderr
    (chat,) = public_chats(saved.read_text())
    assert [tool.function.name for tool in chat.tools or ()] == ["Read"]
    assert "Work in" in str(chat.messages)


@pytest.mark.parametrize("content", ['{"body": {}}', '{"path": "/v1/messages", "body": {"tools": 1}}', "{"])
def test_what_is_no_request_is_not_shared(tmp_path: Path, content: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(content)
    refused = run("serve", str(find_file()), "--public-prefix", str(file))
    assert refused.returncode == 1
    assert "surefoot warm --agent NAME --save FILE" in " ".join(refused.stderr.split())


def test_a_server_is_warm_before_the_first_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".secret").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET", "1")
    missing = run("warm", "--agent", "claude-code", "small")
    if "is not installed" in missing.stderr:  # else the tester has it
        assert AGENTS["claude-code"].install in missing.stderr
    install_agent(tmp_path, monkeypatch)
    server = Server(find_file(), "--max-context", "1024")
    try:
        told = [run("warm", "--agent", "claude-code", "small", "--url", server.root).stdout.split() for _ in range(2)]
        (total, known), (_, known_again) = ((int(words[0]), int(words[4])) for words in told)
        assert total > 300
        assert known == 0
        assert 180 < known_again < total, "the tools are found, in another directory"
        assert (
            run("warm", "--agent", "claude-code", "other", "--url", server.root).stderr.count("there is no model") == 1
        )
    finally:
        server.stop()
    gone = run("warm", "--agent", "claude-code", "small", "--url", server.root)
    assert gone.returncode == 1
    assert "no server answers" in gone.stderr
    for words, reason in ((["--threads", "1"], "--threads is not for --agent"), (["--text", "a"], "--text is not for")):
        assert reason in run("warm", "small", "--agent", "claude-code", *words).stderr


def test_all_agents_that_warm_need_nobody() -> None:
    assert RECORDED == ("claude-code", "codex", "opencode", "qwen-code")
