"""The lock file against pyproject.toml. After a change there: .ci/lock."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from surefoot import __version__
from tests.packaging.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPRESS = tomllib.loads((ROOT / "compress" / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / ".ci" / "requirements.txt").read_text()
FREE = {"torch", "xllamacpp"}  # torch is pinned as it stands; xllamacpp's versions are llama.cpp's builds


def pinned() -> dict[str, list[Version]]:
    """Of each package its versions: one for each range of Pythons that needs its own."""
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^ ;]+)", LOCK, re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


def test_it_satisfies_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    versions = pinned()
    for line in (*PROJECT["dependencies"], *extras["dev"], *extras["docs"]):
        asked = Requirement(line)
        assert canonicalize_name(asked.name) in versions, f"{asked.name} is not in the lock: run .ci/lock"
        fitting = [asked.specifier.contains(version) for version in versions[canonicalize_name(asked.name)]]
        assert all(fitting), f"{asked} is another in the lock: run .ci/lock"


def test_every_package_has_its_hashes_and_no_place() -> None:
    packages = re.split(r"\n(?=[A-Za-z])", LOCK[LOCK.index("annotated-doc") :])
    assert all("--hash=sha256:" in package for package in packages)
    assert not re.search(r"://|--index|--find-links", LOCK)


def test_every_dependency_has_an_upper_bound() -> None:
    lines = [
        *PROJECT["dependencies"],
        *COMPRESS["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    free = {asked.name for asked in map(Requirement, lines) if not {"<", "=="} & {s.operator for s in asked.specifier}}
    assert free <= FREE


def test_compress_is_of_the_same_version() -> None:
    assert COMPRESS["version"] == __version__
    assert f"surefoot=={__version__}" in COMPRESS["dependencies"]


def test_torch_is_not_for_serving() -> None:
    assert "torch" not in {Requirement(line).name for line in PROJECT["dependencies"]}
    assert "torch" not in pinned()
