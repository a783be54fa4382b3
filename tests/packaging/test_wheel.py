"""The wheel as users get it: what is in it, and that it works where there is neither compiler nor torch."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from surefoot import __version__
from surefoot.ops.backend import NEEDS
from tests.packaging.conftest import ROOT, run

TAGS = {"py3-none-manylinux_2_17_x86_64", "py3-none-manylinux2014_x86_64"}  # glibc 2.17 and later
SYSTEM = {"libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"}  # what a library may need of it
MOST_WHEEL_BYTES = 8e6
MOST_INSTALLED_BYTES = 260e6
pytestmark = pytest.mark.slow

USE = """
import importlib.util
import numpy as np
from surefoot.ops import Backend, quantise, supported_variants

assert importlib.util.find_spec("torch") is None
x = np.linspace(-1, 1, 300, dtype=np.float32).reshape(3, 100)
values = [quantise(Backend(variant, 2), x).values for variant in supported_variants()]
assert all(np.array_equal(values[0], other) for other in values)
assert np.abs(values[0]).max() == 127
"""


def source_files() -> list[str]:
    """What a clean checkout of the present state would hold."""
    return run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()


@pytest.fixture(scope="module")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", wheel)
    return folder / "bin"


@pytest.fixture
def libraries(wheel: Path, tmp_path: Path) -> list[Path]:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    return list((tmp_path / "surefoot/ops/_lib").iterdir())


def run_clean(clean_bin: Path, *command: str) -> str:
    """With no other program in reach, no compiler above all, and away from the sources."""
    env = {"PATH": str(clean_bin), "HOME": os.environ.get("HOME", "/")}
    return run(clean_bin / command[0], *command[1:], env=env, cwd=clean_bin)


def test_tag_and_size(wheel: Path) -> None:
    assert wheel.name.startswith(f"surefoot-{__version__}-py3-none-manylinux")
    assert wheel.stat().st_size < MOST_WHEEL_BYTES
    with zipfile.ZipFile(wheel) as archive:
        facts = archive.read(f"surefoot-{__version__}.dist-info/WHEEL").decode().splitlines()
    assert {line.removeprefix("Tag: ") for line in facts if line.startswith("Tag:")} == TAGS


def test_contents(wheel: Path) -> None:
    """Every module and every variant's library; nothing else but what describes the package."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = f"surefoot-{__version__}.dist-info"
    modules = {
        name.removeprefix("src/") for name in source_files() if name.startswith("src/") and (ROOT / name).exists()
    }
    libraries = {f"surefoot/ops/_lib/libsurefoot_{variant}.so" for variant in NEEDS}
    described = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == modules | libraries | described


def test_contents_of_compress(tmp_path: Path) -> None:
    """A wheel of its own: its modules, and the names of its commands."""
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT / "compress")
    with zipfile.ZipFile(tmp_path / f"surefoot_compress-{__version__}-py3-none-any.whl") as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info, source = f"surefoot_compress-{__version__}.dist-info", "compress/src/"
    modules = {name.removeprefix(source) for name in source_files() if name.startswith(source)}
    assert names == modules | {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}


def test_sdist_has_the_sources_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in source_files() if name.startswith(("src/", "native/"))} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".gguf"))]
    assert sdist.stat().st_size < MOST_WHEEL_BYTES


def test_libraries_need_only_the_system(libraries: list[Path]) -> None:
    """libstdc++ is inside; auditwheel has seen to the versions of the rest."""
    for library in libraries:
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library)))
        assert needed <= SYSTEM, needed


def test_libraries_show_only_the_c_abi(libraries: list[Path]) -> None:
    for library in libraries:
        symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
        assert symbols
        assert all(symbol.startswith("sf_") for symbol in symbols), symbols


def test_works_without_compiler_and_torch(clean_bin: Path) -> None:
    assert shutil.which("c++", path=str(clean_bin)) is None
    run_clean(clean_bin, "python", "-c", USE)


def test_command_works(clean_bin: Path) -> None:
    assert run_clean(clean_bin, "surefoot", "--version").strip() == f"surefoot {__version__}"
    report = json.loads(run_clean(clean_bin, "surefoot", "doctor", "--json"))
    assert report["measured"]["read_bytes_per_second"] > 0


@pytest.mark.parametrize("command", ["compress", "distill"])
def test_a_command_of_the_other_wheel_says_what_to_install(clean_bin: Path, command: str) -> None:
    assert command in run_clean(clean_bin, "surefoot", "--help")
    done = subprocess.run([clean_bin / "surefoot", command, "model.gguf"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install ./compress" in done.stderr


def test_installation_is_small(clean_bin: Path) -> None:
    files = (file for file in clean_bin.parent.rglob("*") if file.is_file() and not file.is_symlink())
    assert sum(file.stat().st_size for file in files) < MOST_INSTALLED_BYTES
