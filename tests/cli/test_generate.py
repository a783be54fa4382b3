import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from surefoot.cli import options
from surefoot.cli.generate import _read
from surefoot.cli.main import app
from surefoot.ops import supported_variants
from surefoot.weights.packed_cache import PAYS_S, PackedCache
from tests.cli.process import Terminal, run
from tests.stories import stories_gguf

STORY = ", there was a little girl named Lily. She loved to play outside in the park."


def generate(*words: str) -> str:
    """In this process: quicker."""
    result = CliRunner().invoke(app, ["generate", str(stories_gguf()), *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_real_process_writes_the_story_and_nothing_else() -> None:
    done = run("generate", stories_gguf(), "Once upon a time", "-t", "0", "-n", "40")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(STORY)
    piped = run("generate", stories_gguf(), "-", "-t", "0", "-n", "40", text="Once upon a time")
    assert piped.stdout == done.stdout


def test_json() -> None:
    words = ["Once upon a time", "-t", "0", "-n", "30", "--logprobs", "2", "--stats", "--json"]
    report = json.loads(generate(*words))
    assert report["text"].startswith(STORY[:60])
    assert report["finish_reason"] == "length"
    usage = report["usage"]
    assert (usage["num_prompt"], usage["num_generated"], usage["num_cached"]) == (
        len(report["prompt_token_ids"]),
        30,
        0,
    )
    assert usage["num_passes"] == 30 - usage["num_accepted"]
    assert len(report["token_ids"]) == len(report["logprobs"]) == 30
    assert set(report["timings"]) == {"queued", "to_first_token", "total", "tokens_per_second"}
    assert report["of_bandwidth"] > 0


def test_the_same_every_time_in_every_variant() -> None:
    words = ["One day", "-n", "30", "--seed", "3", "--top-p", "0.9", "--repetition-penalty", "1.1", "--json"]
    texts = [json.loads(generate(*words, "--threads", threads))["token_ids"] for threads in ("1", "2")]
    texts += [json.loads(generate(*words, "--variant", variant))["token_ids"] for variant in supported_variants()]
    assert texts == texts[:1] * len(texts)
    assert json.loads(generate(*words, "--seed", "4"))["token_ids"] != texts[0]


def test_stop_and_format() -> None:
    assert generate("Once upon a time", "-t", "0", "--stop", " girl", "--format", "f32") == ", there was a little\n"


def test_chat_and_system() -> None:
    report = json.loads(generate("a time", "--system", "Once upon", "-t", "0", "-n", "5", "--json"))
    assert report["prompt"] == "<s>Once upon a time"
    assert json.loads(generate("Once upon a time", "--chat", "-t", "0", "-n", "5", "--json"))["text"] == report["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-model.gguf", "a"], "give the path of"),
        ([None, "a", "--temperature", "-1"], "temperature must lie between"),
        ([None, "a", "--format", "w9"], "choose one of w8"),
        ([None, "a " * 1000], "shorten the prompt"),
        ([None, "a", "--variant", "abacus"], "abacus"),
    ],
    ids=["model", "temperature", "format", "prompt", "variant"],
)
def test_errors_are_one_line(words: list[str | None], message: str) -> None:
    result = CliRunner().invoke(app, ["generate", *(word or str(stories_gguf()) for word in words)])
    assert result.exit_code == 1
    assert result.output.startswith("surefoot: ")
    assert message in result.output


def test_where_packed_weights_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert options.cache("off") is None
    assert options.cache("auto") == PackedCache(tmp_path / "surefoot" / "packed", PAYS_S)
    assert options.cache("/elsewhere") == PackedCache(Path("/elsewhere"), PAYS_S)


def test_help() -> None:
    result = CliRunner().invoke(app, ["generate", "--help"], env={"COLUMNS": "200"})
    for word in ("--temperature", "--seed", "--format", "--json", "GGUF"):
        assert word in result.output


def test_a_terminal_gets_a_status_line() -> None:
    with Terminal("generate", stories_gguf(), "Once upon a time", "-t", "0", "-n", "40") as terminal:
        terminal.wait_for("named Lily.")
        terminal.wait_for("TTFT")
        assert "tokens/s" in terminal.wait_for("of the bandwidth limit")
        terminal.wait_for("5 + 40 of 512 tokens")
        assert terminal.leave() == 0


@pytest.mark.parametrize(("at_terminal", "shown"), [(True, "a␛]0;owned␇\n"), (False, "a\x1b]0;owned\x07\n")])
def test_the_model_cannot_command_the_terminal(monkeypatch: pytest.MonkeyPatch, at_terminal: bool, shown: str) -> None:
    """Written by a stand-in for a model, since no real one says this when it is asked to."""
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: at_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    output = SimpleNamespace(outputs=[SimpleNamespace(error=None)])
    _read([SimpleNamespace(text="a\x1b]0;owned\x07", output=output)], show=True)
    assert out.getvalue() == shown
