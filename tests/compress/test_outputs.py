"""Outputs that cannot be written are refused before anything is measured."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot_compress.errors import CompressError
from surefoot_compress.methods import CompressOptions
from surefoot_compress.outputs import check_output
from tests.models import tiny
from tests.stories import stories_gguf

TO_FOLDER = ["--output", "compressed-tensors"]
WITH_TEXT = ["--calibration", __file__, "--context", "128"]  # of any kind


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--format", "Q4_0"], "needs --calibration"),
        (["--method", "rtn", "--format", "Q4_X"], "no format"),
        (["--method", "rtn"], "--format"),
        (["--method", "rtn", "--budget", "4.5bpw"], "needs --calibration"),
        (["--method", "rtn", "--format", "int4-g32"], "GGUF has no int4-g32"),
        (["--method", "rtn", "--format", "Q4_0", "--embeddings", "nf4"], "GGUF has no nf4"),
        (["--method", "rtn", "--format", "int4", *TO_FOLDER], "rotate in part"),
        (["--budget", "4bpw", "--offer", "Q4_0,int4", *WITH_TEXT], "GGUF has no int4"),
        (["--budget", "2bpw", "--offer", "Q4_0,Q8_0", *WITH_TEXT], "too few"),
        (["--fits", "1KB", *WITH_TEXT], "too few"),
    ],
)
def test_invalid_options_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.setattr(
        "surefoot_compress.choose_formats.measure_losses", lambda *_: pytest.fail("it was measured first")
    )
    monkeypatch.setattr("surefoot_compress.run.quantised_tensors", lambda *_: pytest.fail("it was quantised first"))
    refused(["compress", stories_gguf(), tmp_path / "out", *words], complaint)
    assert not list(tmp_path.iterdir())


def test_an_unwritable_output_is_refused_at_once(tmp_path: Path) -> None:
    source, words = tmp_path / "model.gguf", ("--method", "rtn", "--format", "Q8_0")
    source.write_bytes(stories_gguf().read_bytes())
    refused(["compress", source, source, *words], "is the model itself")
    refused(["compress", source, tmp_path, *words], "cannot be written")
    refused(["compress", source, tmp_path / "no" / "out", *words], "cannot be written")


@pytest.mark.parametrize(
    ("out", "changes", "complaint"),
    [
        ("new", {"output": "gguf", "format": "Q8_0"}, "from GGUF files only"),
        ("file", {"format": "int8"}, "is a file"),
        ("new", {"format": "Q8_0"}, "compressed-tensors has no Q8_0"),
        ("new", {"format": "int8", "embeddings": "int8"}, "leave out --embeddings"),
    ],
)
def test_invalid_output_folders_are_refused_at_once(
    tmp_path: Path, out: str, changes: dict[str, str], complaint: str
) -> None:
    (tmp_path / "file").touch()
    options = CompressOptions(**{"method": "rtn", "output": "compressed-tensors", **changes})  # type: ignore[arg-type]
    with pytest.raises(CompressError, match=complaint):
        check_output(tiny.checkpoint("llama"), tmp_path, tmp_path / out, options)


def refused(words: list[Any], complaint: str) -> None:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 1
    assert complaint in done.stderr
