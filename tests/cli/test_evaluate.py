"""`surefoot eval perplexity`: its options and error messages."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.evaluate import KvChoice
from surefoot.cli.main import app
from surefoot.evaluate.engines import form_name
from surefoot.ops import KvForm

runner = CliRunner()


def test_choices_are_all_there_are() -> None:
    assert {choice.name: choice.value for choice in KvChoice} == {form.name: form_name(form) for form in KvForm}


@pytest.mark.parametrize(
    ("model", "complaint"), [("missing.gguf", "no such file"), ("text.txt", "not a GGUF file"), (".", "config.json")]
)
def test_a_wrong_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("some text")
    done = runner.invoke(app, ["eval", "perplexity", model, "--text", "text.txt"])
    assert done.exit_code == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.output
