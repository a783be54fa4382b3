"""The packages that the tests of this folder share."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that SUREFOOT_DIST names, or a new one: the sdist of these sources, and the wheel built from it."""
    if given := os.environ.get("SUREFOOT_DIST"):
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT / "packaging" / "build", folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (built,) = dist.glob("*.tar.gz")
    return built
