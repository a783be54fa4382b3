"""Every lesson's script runs, in its small form."""

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.stories import stories_gguf

FOLDER = Path(__file__).parents[2] / "docs/lessons"
OLDER = {"kv_cache", "lesson", "figures"}  # with a test of its own; what the others share; what runs them all
WITHOUT_MODEL = {"fragmentation", "kv_shrinking", "limb_cost", "tiles", "states"}


@pytest.mark.nightly  # what the pages show runs at every change; here its output is looked at
@pytest.mark.parametrize("name", sorted({path.stem for path in FOLDER.glob("*.py")} - OLDER))
def test_lesson(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    model = [] if name in WITHOUT_MODEL else [str(stories_gguf())]
    module.main([*model, "--quick", "--threads", "1", "--svg", str(tmp_path / "plot.svg")])
    table = capsys.readouterr().out
    assert "| --- |" in table
    assert "predicted" in table
    assert "measured" in table
    assert ElementTree.parse(tmp_path / "plot.svg").getroot() is not None


def test_every_script_has_its_page() -> None:
    for script in FOLDER.glob("*.py"):
        page = FOLDER / f"{script.stem.replace('_', '-')}.md"
        assert script.stem in ("lesson", "figures") or script.name in page.read_text()
