"""The files of a public forge: by their schemas, and against what they speak of."""

import importlib
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.packaging.conftest import ROOT, run

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"})
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


def steps(workflow: Path) -> list[dict[str, str]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job.get("steps", [])]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schema(schema: str) -> None:
    tool = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent))
    assert tool, 'check-jsonschema is missing: pip install -e ".[dev]"'
    run(tool, "--builtin-schema", schema, *SCHEMAS[schema])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_scripts_exist(workflow: Path) -> None:
    for step in steps(workflow):
        assert re.search(r"@(v\d|[0-9a-f]{40}$)", step.get("uses", "@v0")), step
        for script in re.findall(r"(?<![\w~/])\.ci/[\w.]+", step.get("run", "")):
            assert (ROOT / script).exists(), script


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_rights_are_few(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_every_supported_python_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    tried = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]["tests"]["strategy"]["matrix"]
    assert set(tried["python"]) == named
    assert project["requires-python"] == f">={tried['python'][0]}"


def test_programs_of_the_night_can_be_imported() -> None:
    """They are no tests themselves: nothing else would notice before the night."""
    programs = re.findall(r"python -m (tests\.\S+)", (ROOT / ".ci" / "nightly").read_text())
    assert len(programs) >= 3
    for program in programs:
        importlib.import_module(program)
